// SPDX-License-Identifier: Apache-2.0
#include "inside.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <functional>

#include "driver/backend.hpp"
#include "driver/oci/compile.hpp"
#include "driver/resources.hpp"
#include "probe/cache.hpp"
#include "profile/profile.hpp"
#include "supervisor/planning.hpp"
#include "sys/file.hpp"

namespace sandbox::bench {

namespace {

using ledger::EntryKind;

constexpr int kThousand = 1000;
constexpr int kManyRuns = 20;

// Every table a profile may have that this driver carries out.
constexpr const char* kFullProfile = R"(version = 1
name = "full"
isolation = "sandbox"

[process]
argv = ["/bin/sh", "-c", "exit 0"]
cwd = "/scratch"
umask = "0077"
timeout = "30s"
env = { LANG = "C.UTF-8", TOOL = "bench" }
rlimits = { nofile = 256, core = 0 }

[rootfs]
source = "host"
read_only = true

[[mount]]
type = "bind"
source = "/usr/share/common-licenses"
target = "/licenses"

[[mount]]
type = "tmpfs"
target = "/scratch"
size = "16MiB"
mode = "1777"

[[mask]]
path = "/licenses/GPL-3"

[[mask]]
path = "/usr/share/doc"

[network]
mode = "none"

[resources]
cpus = 0.5
cpu_weight = 50
memory = "64MiB"
pids = 32
)";

// Repeats `once` and times it; the first call is not counted.
Result<Step> repeat(const std::string& name, int repetitions, const std::function<Status()>& once)
{
    Step step{name, {}};
    TRY_VOID(once());
    for (int i = 0; i < repetitions; ++i) {
        const std::uint64_t start = now_ns();
        TRY_VOID(once());
        step.time.add(now_ns() - start);
    }
    return step;
}

driver::Binding binding_of(const Product& product, const SandboxId& id)
{
    driver::Binding binding;
    binding.id = id;
    binding.name = SandboxName("bench-" + id.str());
    binding.id_base = product.host().config.id_base;
    binding.run_dir = HostPath(product.paths().run_of(id));
    binding.state_dir = HostPath(product.paths().state_of(id));
    binding.cgroup = product.host().cgroup_parent() + "/" + id.str();
    return binding;
}

std::vector<ledger::Intent> intents_of(const SandboxId& id, const std::string& parent)
{
    std::vector<ledger::Intent> intents;
    for (const EntryKind kind :
         {EntryKind::shim_process, EntryKind::state_dir, EntryKind::log_files, EntryKind::run_dir,
          EntryKind::cgroup_root, EntryKind::cgroup_control, EntryKind::cgroup_workload,
          EntryKind::log_worker, EntryKind::launcher_process, EntryKind::pid1_process,
          EntryKind::door_socket, EntryKind::shim_socket})
        intents.push_back({kind, driver::resource_name(kind, id, parent, {})});
    return intents;
}

Result<ledger::Sandbox> row_of(const Product& product, const SandboxId& id, std::string name)
{
    ledger::Sandbox row;
    row.id = id;
    row.name = SandboxName(std::move(name));
    row.profile = "hello";
    row.driver = "oci";
    row.isolation_class = "shared-kernel";
    row.plan_digest = product.plan().digest().str();
    row.plan_path = product.paths().state_of(id) + "/plan.json";
    row.log_path = product.paths().logs_of(id);
    row.state = ledger::State::resolved;
    row.created = TRY(ledger::now());
    row.request_digest = row.plan_digest;
    return row;
}

// As a launch does it: row, ids, intents, state. Returns the first intent's number.
Result<std::uint64_t> add_row(ledger::Transaction& transaction, const Product& product,
                              const std::string& cgroup_parent, const SandboxId& id,
                              const std::string& name, const sys::ProcessIdentity& shim)
{
    const ledger::Sandbox row = TRY(row_of(product, id, name));
    TRY_VOID(transaction.insert(row));
    TRY(transaction.begin_generation(id));
    TRY_VOID(transaction.set_shim(id, shim));
    TRY(transaction.allocate_ids(id,
                                 {product.host().config.id_base, product.host().config.id_ranges}));
    const auto intents = intents_of(id, cgroup_parent);
    const std::uint64_t first = TRY(transaction.intend(id, intents));
    TRY_VOID(transaction.set_state(id, ledger::State::prepared));
    return first;
}

Status commit_one(const Product& product, const std::string& state,
                  const sys::ProcessIdentity& self)
{
    auto ledger = TRY(ledger::Ledger::open(HostPath(state), ledger::OpenMode::create));
    const SandboxId id = TRY(ledger::new_sandbox_id());
    auto transaction = TRY(ledger.begin());
    TRY(add_row(transaction, product, product.host().cgroup_parent(), id, "row-" + id.str(), self));
    return transaction.commit();
}

Status fill(const Product& product, const supervisor::Paths& paths,
            const sys::ProcessIdentity& self)
{
    TRY_VOID(sys::make_dirs(paths.state));
    TRY_VOID(sys::make_dirs(paths.run));
    auto ledger = TRY(ledger::Ledger::open(HostPath(paths.state), ledger::OpenMode::create));
    auto transaction = TRY(ledger.begin());
    const std::string parent = supervisor::default_cgroup_parent(paths);
    for (int i = 0; i < kThousand; ++i) {
        const SandboxId id = TRY(ledger::new_sandbox_id());
        TRY_VOID(sys::make_dirs(paths.logs_of(id)));
        const std::uint64_t first = TRY(
            add_row(transaction, product, parent, id, "many-" + std::to_string(i), self));
        TRY_VOID(transaction.set_state(id, ledger::State::created));
        TRY_VOID(transaction.set_state(id, ledger::State::running));
        if (i % 2 == 0) continue;
        TRY_VOID(transaction.record_exit(id, 1, {0, 0, ledger::ExitReason::exited, 0}));
        TRY_VOID(transaction.set_state(id, ledger::State::stopped));
        const auto count = intents_of(id, "").size();
        for (std::uint64_t n = 0; n < count; ++n) {
            if (n == 1 || n == 2) continue;  // state_dir, log_files: rest with a kept sandbox
            TRY_VOID(transaction.undone(first + n));
        }
        for (const auto& [n, path] : {std::pair{1U, paths.state_of(id)}, {2U, paths.logs_of(id)}}) {
            const auto folder = TRY(sys::open_dir(path));
            TRY_VOID(transaction.observed(first + n,
                                          ledger::encode(TRY(sys::identity_of_fd(folder.get())))));
        }
    }
    return transaction.commit();
}

}  // namespace

Result<std::vector<Step>> measure_libraries(const Product& product, int repetitions)
{
    const supervisor::Host& host = product.host();
    const std::string full = kFullProfile;
    auto parsed = profile::parse_profile(full, "full.toml");
    const auto plan = TRY(plan_of(host, full));
    const resolve::Request request{parsed.profile->profile, parsed.profile->where};
    const auto binding = binding_of(product, SandboxId(std::string(32, '0')));
    const auto self = TRY(sys::identity_of(getpid()));
    const std::string state = product.work() + "/commits";
    TRY_VOID(sys::make_dirs(state));

    std::vector<Step> steps;
    steps.push_back(TRY(repeat("config, bundles, probe (cached)", repetitions, [&]() -> Status {
        TRY(supervisor::load_host(host.paths, supervisor::Freshness::cached));
        return {};
    })));
    steps.push_back(TRY(repeat("  of these, probe (cached)", repetitions, [&]() -> Status {
        probe::cached_probe(host.paths.run, host.probing);
        return {};
    })));
    steps.push_back(TRY(repeat("parse (full profile)", repetitions, [&]() -> Status {
        if (profile::parse_profile(full, "full.toml").profile) return {};
        return fail(Code::internal, "the full profile no longer parses");
    })));
    steps.push_back(TRY(repeat("resolve (full profile)", repetitions, [&]() -> Status {
        const auto resolution = resolve::resolve(request, host.policy, host.snapshot);
        if (std::holds_alternative<plan::ExecutionPlan>(resolution)) return {};
        return fail(Code::internal, "the full profile is refused");
    })));
    steps.push_back(TRY(repeat("compile config.json and tree", repetitions, [&]() -> Status {
        TRY(driver::oci::compile(plan, binding));
        return {};
    })));
    steps.push_back(TRY(repeat("ledger open and first commit", repetitions,
                               [&]() -> Status { return commit_one(product, state, self); })));
    const std::map<std::string, driver::ProgramSource> programs{
        {"oci.runtime",
         {HostPath(std::string(host.snapshot.value(facts::name::kOciRuntimePath))),
          std::string(host.snapshot.value(facts::name::kOciRuntimeDigest))}},
        {"sandbox-init",
         {HostPath(host.probing.init.path),
          std::string(host.snapshot.value(facts::name::kInitDigest))}}};
    steps.push_back(TRY(repeat("seal crun and sandbox-init", repetitions, [&]() -> Status {
        TRY(driver::seal(programs));
        return {};
    })));
    return steps;
}

Result<ManySandboxes> measure_many(const Product& product, const Options& options)
{
    const std::string root = product.work() + "/many";
    const auto paths = supervisor::find_paths(root);
    TRY_VOID(fill(product, paths, TRY(sys::identity_of(getpid()))));
    ManySandboxes many;
    many.count = kThousand;
    const auto time = [&](const char* verb, Series& series) -> Status {
        for (int i = 0; i <= std::min(options.runs, kManyRuns); ++i) {
            const Command command{{options.bin + "/sandboxctl", "--root", root, verb}, {kPath}, -1};
            const Timed timed = TRY(run_timed(command));
            if (timed.status != 0)
                return fail(Code::unavailable,
                            std::string("sandboxctl ") + verb + ": " + timed.output);
            if (i > 0) series.add(timed.end_ns - timed.start_ns);
        }
        return {};
    };
    TRY_VOID(time("ps", many.ps));
    TRY_VOID(time("reconcile", many.reconcile));
    return many;
}

}  // namespace sandbox::bench
