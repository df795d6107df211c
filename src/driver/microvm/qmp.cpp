// SPDX-License-Identifier: Apache-2.0
#include "driver/microvm/qmp.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "base/diagnostic.hpp"
#include "canon/json.hpp"
#include "sys/file.hpp"

namespace sandbox::driver::microvm {

namespace {

using canon::Json;

// Names and words of QEMU's are short; longer ones are cut before anybody prints them.
constexpr std::size_t kLongestWord = 256;
// A greeting nests four deep.
constexpr canon::Limits kQmpLimits{kLongestQmpLine, 8};

std::unexpected<Error> not_qmp(const char* why)
{
    return fail(Code::corrupt, std::string("the VMM's control socket: ") + why);
}

std::string word(const Json& object, const char* key)
{
    const auto at = object.find(key);
    if (at == object.end() || !at->is_string()) return {};
    return at->get_ref<const std::string&>().substr(0, kLongestWord);
}

std::optional<std::string> version_of(const Json& greeting)
{
    const Json::json_pointer at("/version/qemu");
    if (!greeting.is_object() || !greeting.contains(at)) return std::nullopt;
    const Json& qemu = greeting.at(at);
    std::string text;
    for (const char* part : {"major", "minor", "micro"}) {
        const auto number = qemu.find(part);
        if (number == qemu.end() || !number->is_number_unsigned()) return std::nullopt;
        if (!text.empty()) text += '.';
        text += std::to_string(number->get<std::uint64_t>());
    }
    return text;
}

}  // namespace

Result<QmpMessage> parse_qmp(std::string_view line)
{
    const Json message = TRY_WITH(canon::parse(line, kQmpLimits), "the VMM's control socket");
    if (!message.is_object()) return not_qmp("a line is not a JSON object");
    if (const auto greeting = message.find("QMP"); greeting != message.end()) {
        auto version = version_of(*greeting);
        if (!version) return not_qmp("the greeting names no version");
        return QmpMessage(QmpGreeting{std::move(*version)});
    }
    if (const auto value = message.find("return"); value != message.end()) {
        if (!value->is_object()) return not_qmp("a return that nobody asked for");
        return QmpMessage(QmpReturn{word(*value, "status")});
    }
    if (const auto error = message.find("error"); error != message.end()) {
        if (!error->is_object()) return not_qmp("an error without a description");
        return QmpMessage(QmpRefusal{word(*error, "class") + ": " + word(*error, "desc")});
    }
    if (std::string name = word(message, "event"); !name.empty()) {
        const auto data = message.find("data");
        const bool told = data != message.end() && data->is_object();
        return QmpMessage(QmpEvent{std::move(name), told ? word(*data, "reason") : std::string()});
    }
    return not_qmp("a message of no known kind");
}

Status QmpReader::feed(std::string_view bytes, std::vector<QmpMessage>& into)
{
    if (broken_) return not_qmp("it broke the protocol before");
    const auto broken = [this](Error error) {
        broken_ = true;
        line_.clear();
        return fail(std::move(error));
    };
    while (!bytes.empty()) {
        const auto end = bytes.find('\n');
        line_.append(bytes.substr(0, end));
        if (line_.size() > kLongestQmpLine) return broken(not_qmp("a line is too long").error());
        if (end == std::string_view::npos) return {};
        bytes.remove_prefix(end + 1);
        // QEMU ends its lines with CR LF.
        if (line_.ends_with('\r')) line_.pop_back();
        if (!line_.empty()) {
            auto message = parse_qmp(line_);
            if (!message) return broken(std::move(message).error());
            into.push_back(std::move(*message));
        }
        line_.clear();
    }
    return {};
}

std::string_view qmp_line(QmpCommand command) noexcept
{
    switch (command) {
    case QmpCommand::capabilities: return "{\"execute\":\"qmp_capabilities\"}\n";
    case QmpCommand::stop: return "{\"execute\":\"stop\"}\n";
    case QmpCommand::cont: return "{\"execute\":\"cont\"}\n";
    case QmpCommand::quit: return "{\"execute\":\"quit\"}\n";
    case QmpCommand::powerdown: return "{\"execute\":\"system_powerdown\"}\n";
    case QmpCommand::status: return "{\"execute\":\"query-status\"}\n";
    }
    return "{}\n";
}

Result<QmpMessage> Qmp::next(sys::Deadline deadline)
{
    while (unread_.empty()) {
        if (TRY(sys::poll_one(socket_.get(), POLLIN, deadline)) == 0)
            return fail(Code::deadline_exceeded, "the VMM did not answer on its control socket");
        std::array<char, 4096> chunk{};
        const ssize_t got = ::recv(socket_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got < 0) return fail_errno("recv", "the VMM's control socket");
        if (got == 0) return fail(Code::unavailable, "the VMM closed its control socket");
        TRY_VOID(reader_.feed({chunk.data(), static_cast<std::size_t>(got)}, unread_));
    }
    QmpMessage message = std::move(unread_.front());
    unread_.erase(unread_.begin());
    return message;
}

Result<std::string> Qmp::greet(sys::Deadline deadline)
{
    const QmpMessage first = TRY(next(deadline));
    const auto* greeting = std::get_if<QmpGreeting>(&first);
    if (greeting == nullptr) return not_qmp("it does not begin with a greeting");
    TRY(ask(QmpCommand::capabilities, deadline));
    return greeting->version;
}

Result<QmpReturn> Qmp::ask(QmpCommand command, sys::Deadline deadline)
{
    const std::string_view line = qmp_line(command);
    // A line is short and the buffer of a peer that reads is empty: no partial send.
    const ssize_t sent = ::send(socket_.get(), line.data(), line.size(),
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != static_cast<ssize_t>(line.size()))
        return fail(Code::unavailable, "the VMM does not read its control socket");
    for (;;) {
        QmpMessage message = TRY(next(deadline));
        if (auto* event = std::get_if<QmpEvent>(&message)) {
            if (events_.size() == kMostQmpEvents) events_.erase(events_.begin());
            events_.push_back(std::move(*event));
            continue;
        }
        if (auto* done = std::get_if<QmpReturn>(&message)) return std::move(*done);
        if (const auto* refusal = std::get_if<QmpRefusal>(&message))
            return fail(Code::denied, "the VMM refuses: " + escaped(refusal->reason));
        return not_qmp("a second greeting");
    }
}

}  // namespace sandbox::driver::microvm
