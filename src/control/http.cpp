// SPDX-License-Identifier: Apache-2.0
#include "control/http.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <boost/beast/http/string_body.hpp>

namespace sandbox::control {

namespace http = boost::beast::http;
namespace asio = boost::asio;

namespace {

std::string text_of(boost::beast::string_view view) { return {view.data(), view.size()}; }

// Beast's words become statuses of RFC 9110 and RFC 6585 (431).
HttpFault fault_of(const boost::system::error_code& error)
{
    if (error == http::error::header_limit) {
        return {431, "the header is longer than " + std::to_string(kMostHeaderBytes) + " bytes"};
    }
    if (error == http::error::body_limit || error == http::error::buffer_overflow) {
        return {413, "the body is longer than this route takes"};
    }
    if (error == http::error::bad_version) return {505, "only HTTP/1.0 and HTTP/1.1 are spoken"};
    return {400, "not HTTP/1.1: " + error.message()};
}

// Connection is a list of words in any case, RFC 9110, 7.6.1.
bool holds_token(boost::beast::string_view list, std::string_view token)
{
    for (const auto& word : http::token_list(list)) {
        if (boost::beast::iequals(word, {token.data(), token.size()})) return true;
    }
    return false;
}

}  // namespace

struct RequestReader::State {
    http::request_parser<http::string_body> parser;
    Stage stage = Stage::header;
    std::size_t most_body = kMostPlanBytes;
    bool started = false;
    HttpRequest request;

    State()
    {
        parser.header_limit(kMostHeaderBytes);
        // The route's own limit is looked at as soon as the header is there.
        parser.body_limit(kMostPlanBytes);
        // Not eager: it stops behind the header, so that the route's limit is set before the body.
        parser.eager(false);
    }

    void take_header()
    {
        const auto& message = parser.get();
        request.method = text_of(message.method_string());
        const std::string target = text_of(message.target());
        const std::size_t question = target.find('?');
        request.path = target.substr(0, question);
        if (question != std::string::npos) request.query = target.substr(question + 1);
        // Read only; what it may be is checked in decode.cpp.
        request.operation = text_of(message["Idempotency-Key"]);
        request.keep_alive = message.keep_alive();
        request.upgrade = holds_token(message[http::field::connection], "upgrade") &&
                          boost::beast::iequals(message[http::field::upgrade],
                                                {kUpgradeProtocol.data(), kUpgradeProtocol.size()});
        request.expects_continue = boost::beast::iequals(message[http::field::expect],
                                                         "100-continue");
    }

    std::optional<HttpFault> over_limit()
    {
        // The announced length first: nothing of a body that is too long is read.
        const auto announced = parser.content_length();
        if ((announced && *announced > most_body) || parser.get().body().size() > most_body) {
            return HttpFault{413, "the body is longer than the " + std::to_string(most_body) +
                                      " bytes that this route takes"};
        }
        return std::nullopt;
    }
};

RequestReader::RequestReader() : state_(std::make_unique<State>()) {}
RequestReader::~RequestReader() = default;
RequestReader::RequestReader(RequestReader&&) noexcept = default;
RequestReader& RequestReader::operator=(RequestReader&&) noexcept = default;

RequestReader::Stage RequestReader::stage() const noexcept { return state_->stage; }
bool RequestReader::started() const noexcept { return state_->started; }

std::expected<std::size_t, HttpFault> RequestReader::feed(std::string_view bytes)
{
    State& state = *state_;
    if (state.stage == Stage::done || bytes.empty()) return 0U;
    state.started = true;
    boost::system::error_code error;
    const std::size_t taken = state.parser.put(asio::buffer(bytes.data(), bytes.size()), error);
    // Not a failure: the rest has not come yet.
    if (error == http::error::need_more) error = {};
    if (error) return std::unexpected(fault_of(error));
    if (state.stage == Stage::header && state.parser.is_header_done()) {
        state.take_header();
        state.stage = Stage::body;
        // From here on the parser takes as much of the body as there is.
        state.parser.eager(true);
        if (!state.parser.is_done()) return taken;
    }
    if (state.stage == Stage::body) {
        if (auto fault = state.over_limit()) return std::unexpected(std::move(*fault));
    }
    // A header that never ends is cut at its limit by us too: the parser looks only at whole lines.
    if (state.stage == Stage::header && taken == 0 && bytes.size() > kMostHeaderBytes) {
        return std::unexpected(fault_of(http::make_error_code(http::error::header_limit)));
    }
    if (state.parser.is_done()) {
        state.request.body = std::move(state.parser.get().body());
        state.stage = Stage::done;
    }
    return taken;
}

void RequestReader::limit_body(std::size_t bytes) { state_->most_body = bytes; }
const HttpRequest& RequestReader::request() const noexcept { return state_->request; }
HttpRequest RequestReader::take() { return std::move(state_->request); }

struct ResponseReader::State {
    http::response_parser<http::string_body> parser;
    Body body;

    // Beast's parser would refuse more than 1 MiB by itself; the caller bounds what it keeps.
    explicit State(Body handler) : body(std::move(handler))
    {
        parser.header_limit(kMostHeaderBytes);
        // The server is the operator's; its followed logs have no end.
        parser.body_limit(boost::none);
        parser.eager(true);
    }

    // 101 has no body, and what follows is the stream's.
    bool switched() const { return parser.is_header_done() && parser.get().result_int() == 101; }
};

ResponseReader::ResponseReader(Body body) : state_(std::make_unique<State>(std::move(body))) {}
ResponseReader::~ResponseReader() = default;

bool ResponseReader::has_header() const noexcept { return state_->parser.is_header_done(); }
bool ResponseReader::done() const noexcept
{
    return state_->parser.is_done() || state_->switched();
}
int ResponseReader::status() const noexcept
{
    return has_header() ? static_cast<int>(state_->parser.get().result_int()) : 0;
}
bool ResponseReader::keep_alive() const noexcept { return state_->parser.get().keep_alive(); }

Result<std::size_t> ResponseReader::feed(std::string_view bytes)
{
    std::size_t taken = 0;
    while (taken < bytes.size() && !done()) {
        boost::system::error_code error;
        const auto rest = bytes.substr(taken);
        const std::size_t now = state_->parser.put(asio::buffer(rest.data(), rest.size()), error);
        taken += now;
        std::string& body = state_->parser.get().body();
        if (!body.empty()) {
            const std::string piece = std::move(body);
            // Taken out at once: a followed log must not grow in here.
            body.clear();
            TRY_VOID(state_->body(piece));
        }
        if (error && error != http::error::need_more) {
            return fail(Code::corrupt, "the daemon's answer is not HTTP/1.1: " + error.message());
        }
        if (now == 0) break;
    }
    return taken;
}

std::string_view reason_phrase(int status) noexcept
{
    const auto text = http::obsolete_reason(static_cast<http::status>(status));
    return {text.data(), text.size()};
}

namespace {

std::string status_line(int status)
{
    return "HTTP/1.1 " + std::to_string(status) + " " + std::string(reason_phrase(status)) + "\r\n";
}

constexpr std::string_view kHexDigits = "0123456789abcdef";

int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

bool is_unreserved(char c)  // RFC 3986, 2.3
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

}  // namespace

// Of our own making throughout: no value holds a line break.
std::string render_response(int status, std::string_view type, std::string_view body,
                            Persistence persistence, const std::map<std::string, std::string>& more)
{
    std::string text = status_line(status);
    text += "Content-Type: " + std::string(type) + "\r\nContent-Length: ";
    // no-store: an answer is of its moment, RFC 9111, 5.2.2.5.
    text += std::to_string(body.size()) + "\r\nCache-Control: no-store\r\n";
    for (const auto& [name, value] : more) text += name + ": " + value + "\r\n";
    if (persistence == Persistence::close) text += "Connection: close\r\n";
    text += "\r\n";
    text += body;
    return text;
}

std::string render_chunked_header(int status, std::string_view type)
{
    return status_line(status) + "Content-Type: " + std::string(type) +
           "\r\nTransfer-Encoding: chunked\r\nCache-Control: no-store\r\n\r\n";
}

std::string render_chunk(std::string_view bytes)
{
    // Hexadecimal, RFC 9112, 7.1.
    std::string size;
    for (std::size_t rest = bytes.size(); rest != 0; rest >>= 4U) {
        size.insert(size.begin(), kHexDigits[rest & 15U]);
    }
    return size + "\r\n" + std::string(bytes) + "\r\n";
}

std::string_view last_chunk() noexcept { return "0\r\n\r\n"; }

std::string render_switching()
{
    return status_line(101) + "Connection: Upgrade\r\nUpgrade: " + std::string(kUpgradeProtocol) +
           "\r\n\r\n";
}

std::string render_request(std::string_view method, std::string_view target, std::string_view body,
                           bool upgrade, std::string_view operation)
{
    // Host is mandatory in HTTP/1.1 and of no meaning on a unix socket.
    std::string text = std::string(method) + " " + std::string(target) +
                       " HTTP/1.1\r\nHost: sandboxd\r\n";
    if (upgrade)
        text += "Connection: Upgrade\r\nUpgrade: " + std::string(kUpgradeProtocol) + "\r\n";
    if (!operation.empty()) text += "Idempotency-Key: " + std::string(operation) + "\r\n";
    // A length also where the body is empty: a POST without one is refused by some parsers.
    if (!body.empty() || method != "GET") {
        text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
                "\r\n";
    }
    return text + "\r\n" + std::string(body);
}

std::optional<std::string> percent_decode(std::string_view text)
{
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            plain += text[i];
            continue;
        }
        if (i + 2 >= text.size()) return std::nullopt;
        const int high = hex_value(text[i + 1]);
        const int low = hex_value(text[i + 2]);
        // A NUL would end the text for every system call below.
        if (high < 0 || low < 0 || (high == 0 && low == 0)) return std::nullopt;
        plain += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return plain;
}

std::string percent_encode(std::string_view text)
{
    std::string safe;
    for (const char c : text) {
        if (is_unreserved(c)) {
            safe += c;
            continue;
        }
        const auto byte = static_cast<unsigned char>(c);
        safe += {'%', kHexDigits[byte >> 4U], kHexDigits[byte & 15U]};
    }
    return safe;
}

std::optional<std::map<std::string, std::string>> parse_query(std::string_view text)
{
    std::map<std::string, std::string> query;
    while (!text.empty()) {
        const std::size_t end = text.find('&');
        const std::string_view pair = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        if (pair.empty()) continue;
        const std::size_t equals = pair.find('=');
        auto key = percent_decode(pair.substr(0, equals));
        // A word alone is a flag that is set.
        auto value = percent_decode(equals == std::string_view::npos ? std::string_view("1")
                                                                     : pair.substr(equals + 1));
        if (!key || !value) return std::nullopt;
        // Twice the same: nobody can say which one was meant.
        if (!query.emplace(std::move(*key), std::move(*value)).second) return std::nullopt;
    }
    return query;
}

}  // namespace sandbox::control
