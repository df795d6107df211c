// SPDX-License-Identifier: Apache-2.0
#include "daemon/log.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/diagnostic.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::daemon {

namespace {

// systemd's documented address of the native protocol (systemd.io, "Native Journal Protocol").
constexpr const char* kJournalSocket = "/run/systemd/journal/socket";

// JOURNAL_STREAM holds device and inode of the stream that the manager gave us (systemd.exec(5)).
// Compared, because standard error may have been redirected since.
bool stderr_is_journal()
{
    const char* stream = std::getenv("JOURNAL_STREAM");
    struct stat info{};
    if (stream == nullptr || fstat(STDERR_FILENO, &info) != 0) return false;
    return std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino) == stream;
}

sys::UniqueFd connect_journal()
{
    sys::UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    // Fits: a literal of 27 characters, and sun_path has 108 bytes (unix(7)).
    std::strncpy(address.sun_path, kJournalSocket, sizeof address.sun_path - 1);
    if (!socket ||
        connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        // Without it lines go to standard error, which is the journal, too.
        return {};
    }
    return socket;
}

// The journal's native protocol: one FIELD=value a line. Values are escaped: no newline in them, so
// no value can add a field.
std::string datagram(int priority, std::string_view message,
                     std::span<const control::LogField> fields)
{
    std::string text = "PRIORITY=" + std::to_string(priority) +
                       "\nSYSLOG_IDENTIFIER=sandboxd\nMESSAGE=" + escaped(message) + "\n";
    for (const auto& field : fields) {
        text += std::string(field.name) + "=" + escaped(field.value) + "\n";
    }
    return text;
}

}  // namespace

Log::Log()
{
    if (stderr_is_journal()) journal_ = connect_journal();
}

void Log::write(int priority, std::string_view message,
                std::span<const control::LogField> fields) const
{
    if (journal_.valid()) {
        const std::string text = datagram(priority, message, fields);
        // Never waits for the journal: a daemon that hangs in its log serves nobody. What does not
        // fit (EMSGSIZE, EAGAIN) goes to standard error.
        if (send(journal_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
            return;
    }
    // "<3>": sd-daemon(3), as the manager reads it from a stream.
    std::string line = "<" + std::to_string(priority) + ">" + escaped(message);
    for (const auto& field : fields) {
        line += " " + std::string(field.name) + "=" + escaped(field.value);
    }
    // A log that cannot be written stops nothing.
    static_cast<void>(sys::write_all(STDERR_FILENO, line + "\n"));
}

}  // namespace sandbox::daemon
