// SPDX-License-Identifier: Apache-2.0
#include "audit/audit.hpp"
#include "fuzz.hpp"

// The chain: a log that was written verifies; the same log with any byte changed, cut, repeated or
// moved does not, and the line named lies in it or just behind it.
// Input: how many records, their texts, then the damage. Also taken as a log as it stands.
namespace sandbox::fuzz {

namespace {

struct WrittenLog {
    std::string text;
    audit::Head head;
};

WrittenLog write_log(Bytes& bytes)
{
    WrittenLog log;
    const std::size_t count = 1 + bytes.byte() % 4;
    for (std::size_t i = 0; i < count; ++i) {
        const audit::Subject subject{SandboxId(std::string(32, 'a')), SandboxName("web"), 1, "op",
                                     "2026-01-02T03:04:05.678Z"};
        const audit::Acted act{std::string(bytes.text(8)), std::string(bytes.text(40))};
        const auto line = audit::next_line(log.head, {subject, act});
        HOLDS(line.has_value());
        log.text += line->text + "\n";
        log.head = line->head;
    }
    return log;
}

std::string damaged(std::string text, Bytes& bytes)
{
    for (int edits = 0; edits < 4 && !bytes.empty() && !text.empty(); ++edits) {
        const std::uint8_t kind = bytes.byte();
        const std::size_t at = bytes.below(text.size());
        switch (kind % 5) {
        case 0: text[at] = static_cast<char>(text[at] ^ (bytes.byte() | 1)); break;
        case 1: text.resize(at); break;
        case 2: text.erase(at, 1 + bytes.byte()); break;
        case 3: text.insert(at, 1, static_cast<char>(bytes.byte())); break;
        default: text += text.substr(at); break;
        }
    }
    return text;
}

void check_place(std::string_view log, const std::optional<audit::Broken>& broken)
{
    if (!broken) return;
    HOLDS(broken->line <= static_cast<std::size_t>(std::ranges::count(log, '\n')) + 1);
    HOLDS(is_safe_text(broken->why, ""));
    HOLDS(is_safe_text(audit::render_verdict(broken, {}), "\n"));
}

}  // namespace

FUZZ_TARGET(audit_chain)
{
    Bytes bytes(input);
    const WrittenLog log = write_log(bytes);
    HOLDS(!audit::verify(log.text, log.head).has_value());
    const std::string other = damaged(log.text, bytes);
    const auto broken = audit::verify(other, log.head);
    HOLDS(broken.has_value() == (other != log.text));
    check_place(other, broken);

    const auto raw = audit::verify(input, {});
    HOLDS(raw.has_value() == !input.empty());
    check_place(input, raw);
}

}  // namespace sandbox::fuzz
