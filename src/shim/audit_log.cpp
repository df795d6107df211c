// SPDX-License-Identifier: Apache-2.0
#include "shim/audit_log.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/failpoint.hpp"
#include "canon/json.hpp"
#include "sys/file.hpp"

namespace sandbox::shim {

namespace {

// What canon::parse takes at most; no line of ours can be longer.
constexpr std::size_t kLongestLine = 4U << 20;  // canon::Limits
constexpr std::size_t kUsualLine = 64U << 10;  // far above what a line takes; else it is read again

audit::Head to_audit(const ledger::AuditHead& head)
{
    if (head.seq == 0) return {};
    return {head.seq, head.digest};
}

// The sequence number of the last whole line, and where it ends: a torn tail of an interrupted
// flush is cut off, since its lines are still queued. Found from the end: the log only grows, and
// reading all of it would make each flush slower than the last.
struct Tail {
    std::uint64_t seq = 0;
    off_t end = 0;
};

Result<std::string> read_range(int file, off_t from, off_t end)
{
    std::string text(static_cast<std::size_t>(end - from), '\0');
    const ssize_t count = pread(file, text.data(), text.size(), from);
    if (count < 0) return fail_errno("pread", kAuditName);
    text.resize(static_cast<std::size_t>(count));
    return text;
}

Result<Tail> find_tail(int file)
{
    struct stat status{};
    if (fstat(file, &status) != 0) return fail_errno("fstat", kAuditName);
    std::string text;
    off_t from = 0;
    std::size_t last = std::string::npos;
    std::size_t before = std::string::npos;
    // First the usual case; only a line longer than that makes the second, larger read.
    for (const std::size_t most : {kUsualLine, kLongestLine + 1}) {
        from = std::max<off_t>(0, status.st_size - static_cast<off_t>(most));
        text = TRY(read_range(file, from, status.st_size));
        last = text.rfind('\n');
        before = last == std::string::npos || last == 0 ? std::string::npos
                                                        : text.rfind('\n', last - 1);
        if (before != std::string::npos) break;
    }
    if (last == std::string::npos) {
        // A torn first line is dropped; more than any line holds without an end is no line of ours.
        if (from == 0) return Tail{};
        return fail(Code::corrupt,
                    "audit.jsonl ends in more bytes than a line can have, without an "
                    "end of line: see 'sandboxctl audit verify'");
    }
    const std::size_t begin = before == std::string::npos ? 0 : before + 1;
    const auto line = TRY_WITH(canon::parse(std::string_view(text).substr(begin, last - begin)),
                               "the last line of audit.jsonl");
    const auto seq = line.is_object() ? line.find("seq") : line.end();
    if (!line.is_object() || seq == line.end() || !seq->is_number_unsigned()) {
        return fail(Code::corrupt, "the last line of audit.jsonl has no sequence number: see "
                                   "'sandboxctl audit verify'");
    }
    return Tail{seq->get<std::uint64_t>(), from + static_cast<off_t>(last) + 1};
}

}  // namespace

Status queue_audit(ledger::Ledger& ledger, ledger::Transaction& transaction,
                   const audit::Subject& subject, std::vector<audit::Body> bodies)
{
    // Read through the transaction's own connection: the head cannot move before the commit.
    // Chained here and not at the flush: the order of the chain is the order of the commits.
    ledger::AuditHead stored = TRY(ledger.audit_head());
    audit::Head head = to_audit(stored);
    for (audit::Body& body : bodies) {
        const audit::Line line = TRY(audit::next_line(head, {subject, std::move(body)}));
        const ledger::AuditHead next{line.head.seq, line.head.digest};
        TRY_VOID(transaction.queue_audit(stored, next, line.text));
        stored = next;
        head = line.head;
    }
    return {};
}

Status flush_audit(ledger::Ledger& ledger, const std::string& state_root)
{
    auto folder = TRY(sys::open_dir(state_root));
    auto file = TRY(
        sys::open_at2(folder.get(), kAuditName, O_RDWR | O_CREAT | O_APPEND, 0600, sys::kBeneath));
    // One writer of the file at a time; ends with the descriptor, also by a kill.
    if (flock(file.get(), LOCK_EX) != 0) return fail_errno("flock", kAuditName);
    // Asked under the lock: what another flush has just written is gone from the queue.
    const auto queued = TRY(ledger.queued_audit());
    if (queued.empty()) return {};
    const Tail tail = TRY(find_tail(file.get()));
    if (ftruncate(file.get(), tail.end) != 0) return fail_errno("ftruncate", kAuditName);
    std::string text;
    for (const auto& line : queued) {
        if (line.seq > tail.seq) text += line.line + "\n";
    }
    failpoint("audit.before-write");
    TRY_VOID(sys::write_all(file.get(), text));
    failpoint("audit.written");
    // Durable in the file before the queue forgets: at each moment one of the two has the line.
    if (fdatasync(file.get()) != 0) return fail_errno("fdatasync", kAuditName);
    // Before the next line: its commit then pays for the new WAL's header, not the next launch.
    TRY_VOID(ledger.compact(ledger::CompactWhen::large));
    TRY_VOID(ledger.forget_queued_audit(queued.back().seq));
    failpoint("audit.dropped");
    return {};
}

}  // namespace sandbox::shim
