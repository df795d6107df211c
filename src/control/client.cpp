// SPDX-License-Identifier: Apache-2.0
#include "control/client.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "control/pump.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::control {

namespace {

constexpr int kBehindStreams = 3;
constexpr std::size_t kAnswerBytes = 64U << 10;
constexpr int kSwitched = 101;  // RFC 9110, 15.2.2

Error gone()
{
    return {Code::unavailable, "the daemon closed the connection before it answered: see its log; "
                               "'sandboxctl ps' shows what became of the sandbox"};
}

}  // namespace

Result<HttpClient> HttpClient::connect(const std::string& socket_path)
{
    HttpClient client(socket_path);
    auto socket = sys::unix_connect(socket_path, sys::SocketType::stream);
    if (!socket && socket.error().errnum() == ECONNREFUSED) {
        // A socket file whose daemon died: for the caller the same as none.
        return fail(Code::not_found, "nobody listens on " + socket_path);
    }
    // Where the caller's standard streams are closed it has one of their numbers, and the console
    // would take it for theirs.
    client.socket_ = TRY(sys::duplicate(TRY(std::move(socket)).get(), kBehindStreams));
    return client;
}

// The daemon closes connections that were idle, and when it restarts.
Status HttpClient::ready()
{
    if (socket_.valid()) {
        // Readable between two requests means that the daemon closed it: an answer cannot be due.
        pollfd wait{socket_.get(), POLLIN, 0};
        if (poll(&wait, 1, 0) == 0) return {};
    }
    socket_ = TRY(sys::duplicate(TRY(sys::unix_connect(path_, sys::SocketType::stream)).get(),
                                 kBehindStreams));
    return {};
}

Status HttpClient::send(std::string_view bytes, sys::Deadline deadline)
{
    while (!bytes.empty()) {
        // MSG_DONTWAIT with poll: the deadline holds also where the daemon does not read.
        const ssize_t put = ::send(socket_.get(), bytes.data(), bytes.size(),
                                   MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put > 0) {
            bytes.remove_prefix(static_cast<std::size_t>(put));
            continue;
        }
        if (errno == EINTR) continue;
        // It may have refused the request by its header alone: what it says is to be read.
        if (errno == EPIPE || errno == ECONNRESET) return {};
        if (errno != EAGAIN) return fail_errno("send", path_);
        if (TRY(sys::poll_one(socket_.get(), POLLOUT, deadline)) == 0) {
            return fail(Code::deadline_exceeded, "the daemon takes no request");
        }
    }
    return {};
}

// Until the response is whole; bytes behind it stay in `held`.
Status HttpClient::receive(ResponseReader& reader, std::string& held, sys::Deadline deadline)
{
    std::string chunk(kAnswerBytes, '\0');
    while (!reader.done()) {
        if (TRY(sys::poll_one(socket_.get(), POLLIN, deadline)) == 0) {
            return fail(Code::deadline_exceeded, "the daemon does not answer");
        }
        // Blocking is fine: poll said that something is there.
        const ssize_t count = recv(socket_.get(), chunk.data(), chunk.size(), 0);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno != ECONNRESET) return fail_errno("recv", path_);
        if (count <= 0) return fail(gone());
        held.append(chunk, 0, static_cast<std::size_t>(count));
        held.erase(0, TRY(reader.feed(held)));
    }
    return {};
}

// One request and the whole of its response.
Result<HttpAnswer> HttpClient::exchange(std::string_view request, std::string& held,
                                        sys::Deadline deadline)
{
    TRY_VOID(ready());
    HttpAnswer answer;
    ResponseReader reader([&](std::string_view piece) -> Status {
        answer.body += piece;
        return {};
    });
    TRY_VOID(send(request, deadline));
    TRY_VOID(receive(reader, held, deadline));
    answer.status = reader.status();
    if (answer.status != kSwitched && !reader.keep_alive()) socket_.reset();
    return answer;
}

Result<HttpAnswer> HttpClient::request(std::string_view method, std::string_view target,
                                       std::string_view body, sys::Deadline deadline)
{
    std::string held;
    return exchange(render_request(method, target, body, false, {}), held, deadline);
}

Result<HttpAnswer> HttpClient::lines(std::string_view target, const Line& use)
{
    TRY_VOID(ready());
    HttpAnswer answer;
    std::string line;
    bool enough = false;
    // The reader is not made yet where its callback is written.
    ResponseReader* status = nullptr;
    ResponseReader reader([&](std::string_view piece) -> Status {
        if (status->status() != 200) {
            answer.body += piece;
            return {};
        }
        line += piece;
        std::size_t begin = 0;
        for (auto end = line.find('\n'); end != std::string::npos && !enough;
             end = line.find('\n', begin)) {
            enough = !use(std::string_view(line).substr(begin, end - begin));
            begin = end + 1;
        }
        line.erase(0, begin);
        // An error is how a reader is stopped in the middle; it is told from others by `enough`.
        return enough ? fail(Code::conflict, "enough") : Status{};
    });
    status = &reader;
    std::string held;
    // No deadline: who follows waits for things that may never come.
    TRY_VOID(send(render_request("GET", target, {}, false, {}), sys::Deadline::never()));
    const Status received = receive(reader, held, sys::Deadline::never());
    // The rest of an answer that nobody wants is on this connection.
    if (!received || !reader.keep_alive()) socket_.reset();
    if (!received && !enough) return fail(received.error());
    answer.status = reader.status();
    return answer;
}

Result<HttpAnswer> HttpClient::stream(std::string_view target, std::string_view body,
                                      const supervisor::Console& console, bool input)
{
    std::string held;
    HttpAnswer answer = TRY(
        exchange(render_request("POST", target, body, true, {}), held, sys::Deadline::never()));
    if (answer.status == kSwitched)
        answer.body = TRY(pump(socket_.get(), std::move(held), console, input));
    socket_.reset();
    return answer;
}

}  // namespace sandbox::control
