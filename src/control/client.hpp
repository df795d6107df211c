// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "control/frames.hpp"
#include "control/http.hpp"
#include "sys/deadline.hpp"
#include "sys/fd.hpp"

namespace sandbox::control {

// Status and body of one answer, whatever the status.
struct HttpAnswer {
    int status = 0;
    std::string body;
};

// One client of one daemon, blocking. Keeps its connection between requests and makes a new one
// where the daemon has closed it. Not thread-safe. Codes: unavailable (it went away before it
// answered; what it did is not known), deadline_exceeded, corrupt (no HTTP of ours), and those of
// the socket.
class HttpClient {
public:
    // Connects; Code::not_found where nobody listens. `socket_path` may be of any length.
    [[nodiscard]] static Result<HttpClient> connect(const std::string& socket_path);

    [[nodiscard]] Result<HttpAnswer> request(std::string_view method, std::string_view target,
                                             std::string_view body = {},
                                             sys::Deadline deadline = sys::Deadline::never());
    // Whole lines of a 200 as they come, without their newline; false from `use` ends the call. The
    // body of any other status is returned. Blocks without limit.
    using Line = std::function<bool(std::string_view line)>;
    [[nodiscard]] Result<HttpAnswer> lines(std::string_view target, const Line& use);
    // Pumps the console until the daemon sends its result. Status is that of the refusal where the
    // upgrade was refused, else 101.
    [[nodiscard]] Result<HttpAnswer> stream(std::string_view target, std::string_view body,
                                            const supervisor::Console& console, bool input);

private:
    explicit HttpClient(std::string path) : path_(std::move(path)) {}
    [[nodiscard]] Status ready();
    [[nodiscard]] Result<HttpAnswer> exchange(std::string_view request, std::string& held,
                                              sys::Deadline deadline);
    [[nodiscard]] Status send(std::string_view bytes, sys::Deadline deadline);
    [[nodiscard]] Status receive(ResponseReader& reader, std::string& held, sys::Deadline deadline);

    std::string path_;
    sys::UniqueFd socket_;
};

}  // namespace sandbox::control
