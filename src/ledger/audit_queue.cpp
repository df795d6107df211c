// SPDX-License-Identifier: Apache-2.0
#include "ledger/connection.hpp"

// Audit lines between the commit that made them true and the log file that keeps them.
namespace sandbox::ledger {

// Head and line go into the caller's transaction: a launch that is committed has its line, one that
// rolls back leaves none.
Status Transaction::queue_audit(const AuditHead& expected, const AuditHead& next,
                                std::string_view line)
{
    TRY_VOID(advance_audit(expected, next));
    TRY(connection_->run("INSERT INTO audit_queue(seq, line) VALUES(?, ?)",
                         {static_cast<std::int64_t>(next.seq), std::string(line)}));
    return {};
}

Status Ledger::forget_queued_audit(std::uint64_t up_to_seq)
{
    // Lazily: a line that a power cut brings back is found in the log by its seq and dropped again,
    // so forgetting it is not worth a sync of its own.
    return connection_->commit_lazily("DELETE FROM audit_queue WHERE seq<=?",
                                      {static_cast<std::int64_t>(up_to_seq)});
}

Result<std::vector<QueuedLine>> Ledger::queued_audit()
{
    std::vector<QueuedLine> lines;
    // Checked for type only: what a line says is covered by the chain of digests, not by a row sum.
    for (const Row& row : TRY(connection_->run("SELECT seq, line FROM audit_queue ORDER BY seq"))) {
        const auto* seq = std::get_if<std::int64_t>(&row.at(0));
        const auto* line = std::get_if<std::string>(&row.at(1));
        if (seq == nullptr || line == nullptr) {
            return fail(Code::corrupt, "ledger: a queued audit line is damaged");
        }
        lines.push_back({static_cast<std::uint64_t>(*seq), *line});
    }
    return lines;
}

}  // namespace sandbox::ledger
