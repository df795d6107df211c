// SPDX-License-Identifier: Apache-2.0
#include "product.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "canon/json.hpp"
#include "stage.hpp"
#include "supervisor/planning.hpp"
#include "sys/file.hpp"

namespace sandbox::bench {

namespace {

constexpr const char* kProfile =
    "version = 1\nname = \"hello\"\nisolation = \"sandbox\"\n\n[process]\nargv = [\"/bin/true\"]\n";
constexpr const char* kNative =
    "version = 1\nname = \"hello\"\nisolation = \"sandbox\"\ndriver = \"native\"\n\n[process]\n"
    "argv = [\"/bin/true\"]\n";
constexpr std::size_t kMostFile = 4U << 20;

Status must_work(const Command& command)
{
    const Timed done = TRY(run_timed(command));
    if (done.status == 0) return {};
    std::string line;
    for (const std::string& word : command.argv) line += word + " ";
    return fail(Code::unavailable,
                line + "ended with status " + std::to_string(done.status) + ": " + done.output);
}

// "Pss:                 612 kB" of /proc/PID/smaps_rollup
std::uint64_t kib_of(std::string_view text, std::string_view field)
{
    const auto at = text.find("\n" + std::string(field) + ":");
    if (at == std::string_view::npos) return 0;
    text.remove_prefix(text.find_first_of("0123456789", at));
    std::uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

Result<std::pair<std::uint64_t, std::uint64_t>> pss_and_rss(pid_t pid)
{
    const std::string text = TRY(
        sys::read_file("/proc/" + std::to_string(pid) + "/smaps_rollup", kMostFile));
    return std::pair{kib_of(text, "Pss"), kib_of(text, "Rss")};
}

Result<std::map<std::string, std::uint64_t>> read_timing(const Product& product,
                                                         const std::string& name)
{
    auto ledger = TRY(product.ledger());
    const auto sandbox = TRY(ledger.find_name(SandboxName(name)));
    if (!sandbox) return fail(Code::not_found, "no sandbox " + name);
    const std::string text = TRY(
        sys::read_file(product.paths().state_of(sandbox->id) + "/timing.json", kMostFile));
    const canon::Json json = TRY(canon::parse(text));
    std::map<std::string, std::uint64_t> times;
    for (const auto& [step, time] : json.at("boottime_ns").items())
        times[step] = time.get<std::uint64_t>();
    return times;
}

}  // namespace

Result<plan::ExecutionPlan> plan_of(const supervisor::Host& host, const std::string& toml)
{
    auto outcome = supervisor::make_plan(host, {"<bench>", toml}, {}, nullptr);
    if (auto* plan = std::get_if<plan::ExecutionPlan>(&outcome)) return std::move(*plan);
    if (const auto* denials = std::get_if<std::vector<resolve::Denial>>(&outcome))
        return fail(Code::denied, resolve::render(*denials));
    std::string text = "the profile does not parse:";
    for (const Diagnostic& d : std::get<supervisor::ProfileErrors>(outcome).diagnostics)
        text += "\n" + format(d);
    return fail(Code::invalid_argument, text);
}

Result<Product> Product::make(const Options& options)
{
    Product product;
    product.bin_ = options.bin;
    product.work_ = options.work + "/sandbox-bench-XXXXXX";
    if (mkdtemp(product.work_.data()) == nullptr) return fail_errno("mkdtemp", product.work_);
    product.profile_ = product.work_ + "/hello.toml";
    product.native_ = product.work_ + "/native.toml";
    const sys::UniqueFd work = TRY(sys::open_dir(product.work_));
    TRY_VOID(sys::mkdir_at(work.get(), "root"));
    TRY_VOID(sys::write_file_at(work.get(), "hello.toml", kProfile, 0600));
    TRY_VOID(sys::write_file_at(work.get(), "native.toml", kNative, 0600));
    TRY_VOID(must_work(product.command({"config", "init"})));

    supervisor::Paths paths = supervisor::find_paths(product.work_ + "/root");
    paths.program_dir = options.bin;
    TRY_VOID(sys::make_dirs(paths.run));
    TRY_VOID(sys::make_dirs(paths.state));
    product.host_ = TRY(supervisor::load_host(paths, supervisor::Freshness::probed));
    product.plan_ = TRY(plan_of(*product.host_, kProfile));
    return product;
}

Command Product::command(std::vector<std::string> words) const
{
    Command command{{bin_ + "/sandboxctl", "--root", work_ + "/root"}, {kPath}, -1};
    for (std::string& word : words) command.argv.push_back(std::move(word));
    return command;
}

namespace {

std::vector<std::string> run_words(const std::vector<std::string>& options,
                                   const std::string& profile, const std::vector<std::string>& argv)
{
    std::vector<std::string> words{"run"};
    words.insert(words.end(), options.begin(), options.end());
    words.push_back(profile);
    words.push_back("--");
    words.insert(words.end(), argv.begin(), argv.end());
    return words;
}

}  // namespace

Command Product::run(const std::vector<std::string>& options,
                     const std::vector<std::string>& argv) const
{
    return command(run_words(options, profile_, argv));
}

Command Product::run_native(const std::vector<std::string>& options,
                            const std::vector<std::string>& argv) const
{
    return command(run_words(options, native_, argv));
}

Result<ledger::Ledger> Product::ledger() const
{
    return ledger::Ledger::open(HostPath(paths().state), ledger::OpenMode::read_only);
}

std::vector<std::string> Product::remove()
{
    std::vector<std::string> left;
    if (auto cleaned = run_timed(command({"reconcile"})); cleaned && cleaned->status != 0)
        left.push_back("reconcile: " + cleaned->output);
    for (std::string& group : remove_cgroups(host_->cgroup_parent()))
        left.push_back(std::move(group));
    if (auto removed = sys::remove_tree_at(AT_FDCWD, work_); !removed)
        left.push_back(removed.error().message());
    return left;
}

Result<PhaseTimes> measure_launch(const Product& product, const Options& options)
{
    std::map<std::string, Series> steps;
    for (int i = -options.warm_up; i < options.runs; ++i) {
        pause_between(options);
        const std::string name = "phases-" + std::to_string(i + options.warm_up);
        const Timed timed = TRY(run_timed(product.run({"--name", name}, {"/bin/true"})));
        if (timed.status != 0) return fail(Code::unavailable, "sandboxctl run: " + timed.output);
        TRY_VOID(reap_all());
        const auto times = TRY(read_timing(product, name));
        TRY_VOID(must_work(product.command({"rm", name})));
        if (i < 0) continue;
        for (const auto& [step, time] : times) steps[step].add(time - timed.start_ns);
        steps["client-done"].add(timed.end_ns - timed.start_ns);
    }
    PhaseTimes phases;
    for (const auto& [step, series] : steps) phases.at.emplace_back(step, series.p50());
    std::ranges::sort(phases.at, {}, &std::pair<std::string, double>::second);
    return phases;
}

Result<ResidentMemory> measure_memory(const Product& product)
{
    const std::string name = "memory";
    TRY_VOID(must_work(product.run({"-d", "--name", name}, {"/bin/sleep", "1000"})));
    // Past the audit's and the evidence's writing.
    pause_ms(500);
    ResidentMemory memory;
    {
        auto ledger = TRY(product.ledger());
        const auto sandbox = TRY(ledger.find_name(SandboxName(name)));
        if (!sandbox || !sandbox->shim) return fail(Code::not_found, "the sandbox has no shim");
        std::tie(memory.shim_pss, memory.shim_rss) = TRY(pss_and_rss(sandbox->shim->pid));
        for (const ledger::Entry& entry : TRY(ledger.entries(sandbox->id))) {
            if (entry.kind != ledger::EntryKind::log_worker || entry.identity.empty()) continue;
            const auto worker = TRY(ledger::decode_process(entry.identity));
            std::tie(memory.log_pss, memory.log_rss) = TRY(pss_and_rss(worker.pid));
        }
    }
    TRY_VOID(must_work(product.command({"stop", "-t", "0s", name})));
    TRY_VOID(must_work(product.command({"rm", name})));
    TRY_VOID(reap_all());
    return memory;
}

}  // namespace sandbox::bench
