// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "sys/deadline.hpp"
#include "sys/fd.hpp"

// The QEMU Machine Protocol, as far as a sandbox needs it: JSON lines over an inherited socket. The
// VMM counts as lost (it runs the guest), so what it says is bounded and decoded strictly, and no
// decision about isolation rests on it.
namespace sandbox::driver::microvm {

// A greeting has 400 bytes, a reply of ours below 200: whoever sends more is not QEMU.
inline constexpr std::size_t kLongestQmpLine = 16U << 10;

struct QmpGreeting {
    std::string version;  // "7.2.22"
    bool operator==(const QmpGreeting&) const = default;
};
struct QmpReturn {
    std::string status;  // of query-status: "running", "paused", …; else empty
    bool operator==(const QmpReturn&) const = default;
};
struct QmpRefusal {
    std::string reason;  // class and description
    bool operator==(const QmpRefusal&) const = default;
};
struct QmpEvent {
    std::string name;  // "STOP", "RESUME", "SHUTDOWN", …
    std::string reason;  // of SHUTDOWN: "guest-reset", "host-qmp-quit", …; else empty
    bool operator==(const QmpEvent&) const = default;
};
using QmpMessage = std::variant<QmpGreeting, QmpReturn, QmpRefusal, QmpEvent>;

// Pure. One line without its newline. Code::corrupt for anything that is none of the four.
[[nodiscard]] Result<QmpMessage> parse_qmp(std::string_view line);

// Bytes in, messages out. A failure is final.
class QmpReader {
public:
    // Cut anywhere. Code::corrupt: the peer is not to be heard again.
    [[nodiscard]] Status feed(std::string_view bytes, std::vector<QmpMessage>& into);

private:
    std::string line_;
    bool broken_ = false;
};

enum class QmpCommand { capabilities, stop, cont, quit, powerdown, status };
// Pure: the line, with its newline. Nothing of anybody's text is in it.
std::string_view qmp_line(QmpCommand command) noexcept;

// One VMM's control socket. One command at a time.
class Qmp {
public:
    explicit Qmp(sys::UniqueFd socket) : socket_(std::move(socket)) {}

    int fd() const noexcept { return socket_.get(); }
    // Reads the greeting and leaves negotiation mode. Returns the version the VMM claims.
    [[nodiscard]] Result<std::string> greet(sys::Deadline deadline);
    // Sends the command and waits for its answer. Code::denied: the VMM refused it.
    [[nodiscard]] Result<QmpReturn> ask(QmpCommand command, sys::Deadline deadline);
    // Events that came meanwhile, oldest first; at most kMostQmpEvents are kept, the newest.
    std::vector<QmpEvent> take_events() { return std::exchange(events_, {}); }

private:
    [[nodiscard]] Result<QmpMessage> next(sys::Deadline deadline);

    sys::UniqueFd socket_;
    QmpReader reader_;
    std::vector<QmpMessage> unread_;
    std::vector<QmpEvent> events_;
};
inline constexpr std::size_t kMostQmpEvents = 64;

}  // namespace sandbox::driver::microvm
