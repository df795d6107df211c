// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include "canon/json.hpp"
#include "plan/codec.hpp"
#include "plan/fields.hpp"

namespace sandbox::plan {

Result<ExecutionPlan> ExecutionPlan::seal(PlanContent content)
{
    std::string canonical = TRY_WITH(canon::serialize(content_json(content)), "seal the plan");
    PlanDigest digest(canon::digest(canonical));
    return ExecutionPlan(std::move(content), std::move(canonical), std::move(digest));
}

Result<std::string> encode_file(const ExecutionPlan& plan)
{
    // Keys in canonical order: "digest", "plan", "version". The plan's bytes are canonical already.
    return "{\"digest\":\"" + plan.digest().str() + "\",\"plan\":" + plan.canonical() +
           ",\"version\":" + std::to_string(kPlanVersion) + "}\n";
}

namespace {

Result<ExecutionPlan> decode(std::string_view bytes)
{
    const canon::Json json = TRY(canon::parse(bytes));
    Failure failure;
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
    return TRY_WITH(decode(bytes), "this plan file is refused");
}

}  // namespace sandbox::plan
