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
    ClaimOutcome outcome;
    auto holding = TRY(
        find(*connection_, "WHERE sandbox=? AND state='active'", request.sandbox.str()));
    if (holding) {
        const bool ours = holding->operation == request.operation &&
                          holding->holder == request.holder;
        if (!ours) {
            if (!is_forfeit(*holding, now, alive)) return busy(*holding);
            outcome = {Kind::taken_over, *holding, {}};
            holding->state = OperationState::lost;
            TRY_VOID(connection_->update(Table::operation, to_row(*holding)));
        }
    }
    const Row row = to_row(claim_from_request(request));
    TRY_VOID(repeated ? connection_->update(Table::operation, row)
                      : connection_->insert(Table::operation, row));
    return outcome;
}

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
