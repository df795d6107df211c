// SPDX-License-Identifier: Apache-2.0
#include "shim/request.hpp"

#include <optional>

#include "canon/json.hpp"

namespace sandbox::shim {

namespace {

using canon::Json;

constexpr std::string_view kOutputs[] = {"log-only", "plain", "terminal"};

// Typed look-ups that remember the first failure, so that decoding reads as a list. One key is
// named: the other side is our own release, so one is enough to find the fault.
class Fields {
public:
    explicit Fields(const Json& object) : object_(object) {}

    std::string text(const char* key)
    {
        const Json* value = get(key);
        if (value == nullptr || !value->is_string()) return note(key), std::string();
        return value->get<std::string>();
    }
    std::uint64_t number(const char* key, std::uint64_t most)
    {
        const Json* value = get(key);
        if (value == nullptr || !value->is_number_unsigned() ||
            value->get<std::uint64_t>() > most) {
            return note(key), 0;
        }
        return value->get<std::uint64_t>();
    }
    bool flag(const char* key)
    {
        const Json* value = get(key);
        if (value == nullptr || !value->is_boolean()) return note(key), false;
        return value->get<bool>();
    }
    // Requires: each key is asked for once; all_taken() counts.
    const Json* get(const char* key)
    {
        const auto it = object_.find(key);
        if (it == object_.end()) return nullptr;
        ++taken_;
        return &*it;
    }
    bool all_taken() const { return taken_ == object_.size(); }
    void note(const char* key)
    {
        if (bad_.empty()) bad_ = key;
    }
    const std::string& bad() const { return bad_; }

private:
    const Json& object_;
    std::size_t taken_ = 0;
    std::string bad_;
};

// The words, not numbers: a request can be read by a person.
Output output_of(Fields& fields, const char* key)
{
    const std::string text = fields.text(key);
    for (std::size_t i = 0; i < std::size(kOutputs); ++i) {
        if (kOutputs[i] == text) return static_cast<Output>(i);
    }
    fields.note(key);
    return Output::log_only;
}

Json intents_to_json(const std::vector<JournaledIntent>& intents)
{
    Json list = Json::array();
    for (const JournaledIntent& intent : intents) {
        list.push_back({{"seq", intent.seq}, {"kind", intent.kind}, {"name", intent.name}});
    }
    return list;
}

std::vector<JournaledIntent> intents_from_json(Fields& fields)
{
    std::vector<JournaledIntent> intents;
    const Json* list = fields.get("intents");
    if (list == nullptr || !list->is_array()) return fields.note("intents"), intents;
    for (const Json& item : *list) {
        if (!item.is_object()) return fields.note("intents"), intents;
        Fields entry(item);
        // Sequence numbers stay far below: one host would need decades to intend 2^32 effects.
        intents.push_back(
            {entry.number("seq", UINT32_MAX), entry.text("kind"), entry.text("name")});
        if (!entry.bad().empty() || !entry.all_taken()) fields.note("intents");
    }
    return intents;
}

}  // namespace

Result<std::string> encode(const LaunchRequest& request)
{
    const driver::Binding& binding = request.binding;
    return canon::serialize({{"version", kRequestVersion},
                             {"id", binding.id.str()},
                             {"name", binding.name.str()},
                             {"generation", binding.generation},
                             {"id_base", binding.id_base},
                             {"run_dir", binding.run_dir.str()},
                             {"state_dir", binding.state_dir.str()},
                             {"cgroup", binding.cgroup},
                             {"plan_file", request.plan_file},
                             {"operation", request.operation},
                             {"state_root", request.state_root},
                             {"cgroup_parent", request.cgroup_parent},
                             {"secret_store", request.secret_store},
                             {"intents", intents_to_json(request.intents)},
                             {"remove", request.on_exit == OnExit::remove},
                             {"out", std::string(kOutputs[static_cast<std::size_t>(request.out)])},
                             {"err", std::string(kOutputs[static_cast<std::size_t>(request.err)])},
                             {"stdin_open", request.stdin_open},
                             {"attached", request.attached},
                             {"rows", request.rows},
                             {"cols", request.cols},
                             {"term", request.term},
                             {"log_bytes", request.log.bytes},
                             {"log_files", request.log.files}});
}

Result<LaunchRequest> decode_request(std::string_view text)
{
    // The plan in it is the bulk; depth 8 holds the list of intents.
    const Json json = TRY(canon::parse(text, {.bytes = 16U << 20, .depth = 8}));
    if (!json.is_object()) return fail(Code::corrupt, "a launch request is a JSON object");
    Fields fields(json);
    // First: nothing else of another release's request is worth a message.
    if (fields.number("version", UINT32_MAX) != kRequestVersion) {
        return fail(Code::corrupt, "a launch request of another release: sandboxctl and "
                                   "sandbox-shim must come from the same one");
    }
    LaunchRequest request;
    request.binding.id = SandboxId(fields.text("id"));
    request.binding.name = SandboxName(fields.text("name"));
    request.binding.generation = static_cast<std::uint32_t>(
        fields.number("generation", UINT32_MAX));
    request.binding.id_base = static_cast<std::uint32_t>(fields.number("id_base", UINT32_MAX));
    request.binding.run_dir = HostPath(fields.text("run_dir"));
    request.binding.state_dir = HostPath(fields.text("state_dir"));
    request.binding.cgroup = fields.text("cgroup");
    request.plan_file = fields.text("plan_file");
    request.operation = fields.text("operation");
    request.state_root = fields.text("state_root");
    request.cgroup_parent = fields.text("cgroup_parent");
    request.secret_store = fields.text("secret_store");
    if (!request.secret_store.empty()) request.binding.guarded = {HostPath(request.secret_store)};
    request.intents = intents_from_json(fields);
    request.on_exit = fields.flag("remove") ? OnExit::remove : OnExit::keep;
    request.out = output_of(fields, "out");
    request.err = output_of(fields, "err");
    request.stdin_open = fields.flag("stdin_open");
    request.attached = fields.flag("attached");
    request.rows = static_cast<std::uint16_t>(fields.number("rows", UINT16_MAX));
    request.cols = static_cast<std::uint16_t>(fields.number("cols", UINT16_MAX));
    request.term = fields.text("term");
    // Bounds of the operator's config (schemas/config.yaml), checked again where memory depends on
    // them.
    request.log.bytes = fields.number("log_bytes", 1ULL << 40);
    request.log.files = static_cast<std::uint32_t>(fields.number("log_files", 1000));
    if (!fields.bad().empty()) {
        return fail(Code::corrupt, "launch request: '" + fields.bad() + "' is missing or wrong");
    }
    // A member we do not know may narrow what is asked: refused.
    if (!fields.all_taken()) return fail(Code::corrupt, "launch request: a member nobody knows");
    return request;
}

}  // namespace sandbox::shim
