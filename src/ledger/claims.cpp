// SPDX-License-Identifier: Apache-2.0
#include "ledger/codec.hpp"
#include "ledger/connection.hpp"
#include "ledger/ledger.hpp"

namespace sandbox::ledger {

namespace {

Result<std::optional<Claim>> find(Connection& connection, std::string_view where, std::string key)
{
    const auto row = TRY(connection.select_one(Table::operation, where, {std::move(key)}));
    if (!row) return std::nullopt;
    return TRY(claim_from(*row));
}

// Dead, of another boot, or late: whoever asks may act in its place.
bool is_forfeit(const Claim& claim, const Moment& now, const Alive& alive)
{
    // The boot id comes first: process ids and boot-time clocks of another boot mean nothing here,
    // so the other two tests may not be asked about them. `alive` is last because it makes system
    // calls.
    return claim.holder.boot_id != now.boot_id || now.boottime_ns > claim.deadline_ns ||
           !alive(claim.holder);
}

std::unexpected<Error> busy(const Claim& claim)
{
    return fail(Code::conflict, "sandbox " + claim.sandbox.str() + " is busy: process " +
                                    std::to_string(claim.holder.pid) + " does " + claim.verb +
                                    " (" + claim.step + "): wait for it, or end it");
}

Claim claim_from_request(const ClaimRequest& request)
{
    return Claim{request.operation,      request.sandbox,        request.verb,
                 request.request_digest, request.holder,         request.step,
                 request.deadline_ns,    OperationState::active, {}};
}

}  // namespace

Result<ClaimOutcome> Transaction::claim(const ClaimRequest& request, const Moment& now,
                                        const Alive& alive)
{
    using Kind = ClaimOutcome::Kind;
    if (!is_sandbox_id(request.sandbox.str()) || request.operation.empty()) {
        return fail(Code::invalid_argument,
                    "ledger: a claim needs a sandbox id and an operation id");
    }
    // The same operation id is a client asking again after it lost the answer. It must get the
    // first result, or go on with the same work; another request under that id is a mistake of the
    // client.
    const auto repeated = TRY(find(*connection_, "WHERE id=?", request.operation));
    if (repeated) {
        if (repeated->request_digest != request.request_digest ||
            repeated->sandbox != request.sandbox) {
            return fail(Code::conflict, "operation " + request.operation +
                                            " was used for another request: choose a new id");
        }
        if (repeated->state == OperationState::done) {
            return ClaimOutcome{Kind::recorded, *repeated, repeated->result};
        }
    }
    // What is left is a new operation, or one of ours whose holder vanished before it was done.
    ClaimOutcome outcome;
    auto holding = TRY(
        find(*connection_, "WHERE sandbox=? AND state='active'", request.sandbox.str()));
    if (holding) {
        // One holder may repeat its own claim (a retry within the process); the same operation from
        // another process may not act beside the first.
        const bool ours = holding->operation == request.operation &&
                          holding->holder == request.holder;
        if (!ours) {
            if (!is_forfeit(*holding, now, alive)) return busy(*holding);
            outcome = {Kind::taken_over, *holding, {}};
            // The row stays, as `lost`, so that its holder is told "no longer held" if it wakes up.
            // First this update, then ours: the index operation_claim allows one active row for
            // each sandbox.
            holding->state = OperationState::lost;
            TRY_VOID(connection_->update(Table::operation, to_row(*holding)));
        }
    }
    const Row row = to_row(claim_from_request(request));
    TRY_VOID(repeated ? connection_->update(Table::operation, row)
                      : connection_->insert(Table::operation, row));
    return outcome;
}

// Each call that acts on a claim asks again: a holder that slept past its deadline may have been
// replaced, and two processes must never undo and build the same sandbox at once.
Result<Claim> Transaction::held(std::string_view operation, const ProcessIdentity& holder)
{
    auto claim = TRY(find(*connection_, "WHERE id=?", std::string(operation)));
    if (!claim) return fail(Code::not_found, "ledger: no operation " + std::string(operation));
    if (claim->state != OperationState::active || claim->holder != holder) {
        return fail(Code::conflict, "operation " + std::string(operation) +
                                        " is no longer held by this process: stop acting");
    }
    return *std::move(claim);
}

Status Transaction::set_step(std::string_view operation, const ProcessIdentity& holder,
                             std::string_view step, std::uint64_t deadline_ns)
{
    Claim claim = TRY(held(operation, holder));
    claim.step = step;
    claim.deadline_ns = deadline_ns;
    return connection_->update(Table::operation, to_row(claim));
}

Status Transaction::hand_over(std::string_view operation, const ProcessIdentity& holder,
                              const ProcessIdentity& next)
{
    Claim claim = TRY(held(operation, holder));
    claim.holder = next;
    return connection_->update(Table::operation, to_row(claim));
}

Status Transaction::finish(std::string_view operation, const ProcessIdentity& holder,
                           std::string_view result)
{
    Claim claim = TRY(held(operation, holder));
    claim.state = OperationState::done;
    claim.result = result;
    return connection_->update(Table::operation, to_row(claim));
}

}  // namespace sandbox::ledger
