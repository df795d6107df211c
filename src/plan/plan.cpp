// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include "canon/json.hpp"
#include "plan/codec.hpp"
#include "plan/fields.hpp"

namespace sandbox::plan {

Result<ExecutionPlan> ExecutionPlan::seal(PlanContent content)
{
    // Fails for text that is not UTF-8 and for integers beyond 2^53-1, which have no canonical
    // form.
    std::string canonical = TRY_WITH(canon::serialize(content_json(content)), "seal the plan");
    // Of the bytes, not of the struct: the digest is what another program can compute, too.
    PlanDigest digest(canon::digest(canonical));
    return ExecutionPlan(std::move(content), std::move(canonical), std::move(digest));
}

Result<std::string> encode_file(const ExecutionPlan& plan)
{
    // By hand, because the plan's bytes are canonical already and must not be parsed and written
    // again. Keys in canonical order: "digest", "plan", "version" (RFC 8785, section 3.2.3).
    return "{\"digest\":\"" + plan.digest().str() + "\",\"plan\":" + plan.canonical() +
           ",\"version\":" + std::to_string(kPlanVersion) + "}\n";
}

namespace {

Result<ExecutionPlan> decode(std::string_view bytes)
{
    // Refuses duplicate keys, so that two readers cannot see two plans.
    const canon::Json json = TRY(canon::parse(bytes));
    Failure failure;
    // The version first: a later format may have other keys, and "unknown key" would be the wrong
    // answer.
    Fields file(json, "", failure);
    const int version = file.number<std::uint16_t>("version");
    const std::string digest = file.text("digest");
    const canon::Json& content = file.raw("plan");
    TRY_VOID(failure.status());
    if (version != kPlanVersion) {
        return fail(Code::corrupt, "version " + std::to_string(version) +
                                       " is not known here, only " + std::to_string(kPlanVersion));
    }
    file.close();
    TRY_VOID(failure.status());
    PlanContent decoded = TRY(content_from_json(content));
    // The digest is computed, never taken over: the file's own is only compared.
    ExecutionPlan plan = TRY(ExecutionPlan::seal(std::move(decoded)));
    if (plan.digest().str() != digest) {
        return fail(Code::corrupt, "it was edited: its content has the digest " +
                                       plan.digest().str() + ", the file says " + digest +
                                       "; plan again from the profile");
    }
    // One plan, one file: white space or another order of keys would give two files one digest.
    if (TRY(encode_file(plan)) != bytes) {
        return fail(Code::corrupt,
                    "it was reformatted; save it as `sandboxctl plan -o json` printed it");
    }
    return plan;
}

}  // namespace

Result<ExecutionPlan> decode_file(std::string_view bytes)
{
    // The path is the caller's to add; the bytes may come from a pipe.
    return TRY_WITH(decode(bytes), "this plan file is refused");
}

}  // namespace sandbox::plan
