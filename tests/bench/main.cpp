// SPDX-License-Identifier: Apache-2.0
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>

#include "base/diagnostic.hpp"
#include "command_line.hpp"
#include "driver/oci/compile.hpp"
#include "inside.hpp"
#include "peers.hpp"
#include "product.hpp"
#include "report.hpp"
#include "sessions.hpp"
#include "stage.hpp"
#include "sys/file.hpp"
#include "sys/process.hpp"
#include "timed.hpp"

namespace sandbox::bench {

namespace {

constexpr int kLibraryRuns = 200;
constexpr int kFirstByteRuns = 20;

void say(const std::string& text)
{
    static_cast<void>(sys::write_all(STDERR_FILENO, "bench: " + text + "\n"));
}

std::string describe_machine(const Options& options)
{
    utsname name{};
    uname(&name);
    const auto load = sys::read_file("/proc/loadavg", 256);
    struct statfs work{};
    struct statfs real{};
    const bool same = statfs(options.work.c_str(), &work) == 0 && statfs("/var/lib", &real) == 0 &&
                      work.f_fsid.__val[0] == real.f_fsid.__val[0] &&
                      work.f_fsid.__val[1] == real.f_fsid.__val[1];
    return std::string("Linux ") + name.release + ", " +
           std::to_string(sysconf(_SC_NPROCESSORS_ONLN)) + " CPUs, load " +
           (load ? load->substr(0, load->find(' ')) : "unknown") + "; --root below " +
           options.work +
           (same ? ", the file system of /var/lib" : ", another file system than /var/lib");
}

Result<double> first_byte(const Product& product, const Options& options)
{
    Series series;
    for (int i = 0; i < kFirstByteRuns; ++i) {
        pause_between(options);
        reap_ended();
        const Timed timed = TRY(
            run_timed(product.run({"--rm"}, {"/bin/echo", "x"}), Clock::first_byte));
        if (timed.status != 0) return fail(Code::unavailable, "sandboxctl run: " + timed.output);
        series.add(timed.end_ns - timed.start_ns);
    }
    TRY_VOID(reap_all());
    return series.p50();
}

Result<Figures> measure(const Product& product, const Options& options, std::string& cgroup)
{
    Figures figures;
    driver::Binding binding;
    binding.id = SandboxId(std::string(32, '0'));
    binding.name = SandboxName("bench");
    binding.id_base = product.host().config.id_base;
    binding.run_dir = HostPath(product.paths().run_of(binding.id));
    binding.state_dir = HostPath(product.paths().state_of(binding.id));
    binding.cgroup = product.host().cgroup_parent() + "/" + binding.id.str();
    const auto artifact = TRY(driver::oci::compile(product.plan(), binding));
    const Stage stage = TRY(make_stage(product.plan(), binding, artifact, {"/bin/true"}));
    cgroup = stage.cgroup;
    figures.machine = describe_machine(options);
    figures.peers = TRY(find_peers(product, stage, options));
    say("comparing " + std::to_string(figures.peers.list.size()) + " commands, " +
        std::to_string(options.runs) + " runs each, spaced and back to back");
    if (wants(options, "run")) TRY_VOID(measure_peers(figures.peers, options));
    if (wants(options, "exec")) {
        say("sessions");
        figures.sessions = TRY(measure_sessions(product, stage, figures.peers, options));
    }
    if (wants(options, "launch")) {
        say("the steps of a launch");
        figures.launch = TRY(measure_launch(product, options));
        figures.first_byte_ms = TRY(first_byte(product, options));
    }
    if (!wants(options, "inside")) return figures;
    figures.spawn = TRY(measure_spawn(kLibraryRuns));
    say("libraries, memory, a thousand sandboxes");
    figures.steps = TRY(measure_libraries(product, kLibraryRuns));
    figures.memory = TRY(measure_memory(product));
    figures.many = TRY(measure_many(product, options));
    return figures;
}

int run(int argc, char** argv)
{
    const auto options = parse_options(argc, argv);
    if (!options) return say(options.error().message()), 2;
    if (options->help) return std::fputs(usage().c_str(), stdout), 0;
    if (geteuid() != 0) return say("launching sandboxes needs root"), 1;
    // What measured commands leave running comes to us, and nothing outlives us unseen.
    if (auto status = sys::become_subreaper(); !status) return say(status.error().message()), 1;
    auto product = Product::make(*options);
    if (!product) return say(product.error().message()), 1;
    std::string cgroup;
    const auto figures = measure(*product, *options, cgroup);
    std::vector<std::string> left;
    if (auto reaped = reap_all(); !reaped) left.push_back(reaped.error().message());
    if (!cgroup.empty()) {
        for (std::string& thing : remove_cgroups(cgroup)) left.push_back(std::move(thing));
    }
    for (std::string& thing : product->remove()) left.push_back(std::move(thing));
    for (const std::string& thing : left) say("left behind: " + thing);
    if (!figures) return say(figures.error().message()), 1;
    const auto text = options->json ? render_json(*figures, *options)
                                    : Result<std::string>(render(*figures, *options));
    if (!text) return say(text.error().message()), 1;
    return std::fputs(text->c_str(), stdout), left.empty() ? 0 : 1;
}

}  // namespace

}  // namespace sandbox::bench

int main(int argc, char** argv) { return sandbox::bench::run(argc, argv); }
