// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

// HTTP/1.1 as bytes (RFC 9112), without any socket. Beast parses underneath; kept out of this
// header because it is slow to compile. Pure.
namespace sandbox::control {

// Ceilings in bytes; beyond them 431 and 413. A plan file is the largest thing that is ever sent.
inline constexpr std::size_t kMostHeaderBytes = 16U << 10;
inline constexpr std::size_t kMostBodyBytes = 1U << 20;
inline constexpr std::size_t kMostPlanBytes = 16U << 20;  // bodies that may hold a plan file
inline constexpr std::string_view kUpgradeProtocol = "sandbox-stream";

struct HttpRequest {
    std::string method;
    std::string path;  // as sent, before the question mark
    std::string query;
    std::string operation;  // Idempotency-Key
    bool upgrade = false;  // asks for kUpgradeProtocol
    bool keep_alive = true;
    bool expects_continue = false;
    std::string body;
};

// Why a request is refused before any route sees it.
struct HttpFault {
    int status = 400;
    std::string message;
};

// Reads one request from bytes as they come. Hostile input: bounded before it is kept. After a
// fault nothing more may be fed. One object for each request.
class RequestReader {
public:
    RequestReader();
    ~RequestReader();
    RequestReader(RequestReader&&) noexcept;
    RequestReader& operator=(RequestReader&&) noexcept;

    enum class Stage { header, body, done };
    Stage stage() const noexcept;
    bool started() const noexcept;  // a byte of the request has come
    // Takes bytes off the front; stops behind the header so that its limits can be set, and behind
    // the request. Returns how many were taken; none and no fault: more bytes are needed.
    [[nodiscard]] std::expected<std::size_t, HttpFault> feed(std::string_view bytes);
    // Requires: stage() is not header. A body announced or already longer is a fault of feed().
    void limit_body(std::size_t bytes);
    // Requires: stage() is not header. The body is complete only when done.
    const HttpRequest& request() const noexcept;
    HttpRequest take();  // Requires: done

private:
    struct State;
    std::unique_ptr<State> state_;
};

// Reads one response; the body is handed on as it comes. corrupt: no HTTP/1.1, or a header above
// kMostHeaderBytes.
class ResponseReader {
public:
    // An Error from it ends the reading and is what feed() returns.
    using Body = std::function<Status(std::string_view piece)>;
    explicit ResponseReader(Body body);
    ~ResponseReader();

    bool has_header() const noexcept;
    bool done() const noexcept;
    int status() const noexcept;  // 0 before the header
    bool keep_alive() const noexcept;
    // How many bytes were taken: those behind a 101 are the stream's.
    [[nodiscard]] Result<std::size_t> feed(std::string_view bytes);

private:
    struct State;
    std::unique_ptr<State> state_;
};

enum class Persistence { keep_alive, close };

std::string_view reason_phrase(int status) noexcept;
// A whole response with its length.
std::string render_response(int status, std::string_view type, std::string_view body,
                            Persistence persistence,
                            const std::map<std::string, std::string>& more = {});
std::string render_chunked_header(int status, std::string_view type);
std::string render_chunk(std::string_view bytes);  // Requires: not empty
std::string_view last_chunk() noexcept;
std::string render_switching();
std::string render_request(std::string_view method, std::string_view target, std::string_view body,
                           bool upgrade, std::string_view operation);

// "a%2Fb" to "a/b"; nothing for a broken escape or a NUL.
std::optional<std::string> percent_decode(std::string_view text);
std::string percent_encode(std::string_view text);  // everything but unreserved characters
// "a=1&b=2"; a key twice or a broken escape gives nothing.
std::optional<std::map<std::string, std::string>> parse_query(std::string_view text);

}  // namespace sandbox::control
