// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "canon/json.hpp"

namespace sandbox::bench {

namespace {

using canon::Json;

struct Target {
    std::string name;
    double value;
    double most;
    std::string unit;
};

const Peer* find(const Peers& peers, const std::string& name)
{
    const auto it = std::ranges::find(peers.list, name, &Peer::name);
    return it == peers.list.end() ? nullptr : &*it;
}

const Step* find(const std::vector<Step>& steps, const std::string& start)
{
    const auto it = std::ranges::find_if(
        steps, [&](const Step& step) { return step.name.starts_with(start); });
    return it == steps.end() ? nullptr : &*it;
}

// design: "Numbers to reach"
std::vector<Target> run_targets(const Figures& f)
{
    std::vector<Target> list;
    const Peer* ours = find(f.peers, "sandboxctl");
    const Peer* crun = find(f.peers, "crun");
    list.push_back({"run / bare crun, spaced", ours->spaced.p50() / crun->spaced.p50(), 0.8, "x"});
    list.push_back(
        {"run / bare crun, back to back", ours->close.p50() / crun->close.p50(), 1.2, "x"});
    list.push_back({"the same, in blocks", ours->blocks.p50() / crun->blocks.p50(), 1.2, "x"});
    if (const Peer* podman = find(f.peers, "podman"))
        list.push_back(
            {"run / podman, spaced", ours->spaced.p50() / podman->spaced.p50(), 0.25, "x"});
    const Peer* native = find(f.peers, kNativePeer);
    if (const Peer* bwrap = find(f.peers, "bwrap"); bwrap != nullptr && native != nullptr) {
        list.push_back(
            {"native run / bwrap, spaced", native->spaced.p50() / bwrap->spaced.p50(), 1.5, "x"});
        list.push_back(
            {"the same, in blocks", native->blocks.p50() / bwrap->blocks.p50(), 1.5, "x"});
    }
    return list;
}

std::vector<Target> inside_targets(const Figures& f)
{
    std::vector<Target> list;
    list.push_back(
        {"confine's spawn / raw clone3", f.spawn.box.p50() / f.spawn.raw.p50(), 1.2, "x"});
    if (const Step* resolve = find(f.steps, "resolve"))
        list.push_back({"resolve a full profile", resolve->time.p50(), 1.0, "ms"});
    list.push_back({"reconcile of 1,000", f.many.reconcile.p50(), 1000.0, "ms"});
    list.push_back({"shim + log worker, PSS",
                    static_cast<double>(f.memory.shim_pss + f.memory.log_pss) / 1024.0, 6.0,
                    "MiB"});
    return list;
}

std::vector<Target> session_targets(const Figures& f)
{
    std::vector<Target> list;
    list.push_back(
        {"exec / crun exec, spaced", f.sessions.exec.p50() / f.sessions.crun.p50(), 0.4, "x"});
    if (!f.sessions.podman.empty())
        list.push_back({"exec / podman exec, spaced",
                        f.sessions.exec.p50() / f.sessions.podman.p50(), 0.2, "x"});
    list.push_back({"OPEN to EXIT, open door", f.sessions.open_door.p50(), 1.0, "ms"});
    list.push_back(
        {"plain relay / exec -i cat, GiB/s", f.sessions.plain / f.sessions.stream, 2.0, "x"});
    return list;
}

std::vector<Target> targets(const Figures& f, const Options& options)
{
    std::vector<Target> list;
    const auto add = [&](const char* part, std::vector<Target> (*of)(const Figures&)) {
        if (wants(options, part))
            for (Target& target : of(f)) list.push_back(std::move(target));
    };
    add("run", run_targets);
    add("inside", inside_targets);
    add("exec", session_targets);
    return list;
}

std::string row(const std::string& name, const Series& series, const std::optional<double>& ratio)
{
    std::string text = fmt::format("  {:<34} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>5}", name,
                                   series.p50(), series.percentile(0.95), series.percentile(0.99),
                                   series.percentile(0.0), series.size());
    if (ratio) text += fmt::format("   {:>6.2f}", *ratio);
    return text + "\n";
}

std::string heading(const std::string& title, const std::string& last)
{
    return fmt::format("\n{:<36} {:>8} {:>8} {:>8} {:>8} {:>5}   {:>6}\n", title, "p50", "p95",
                       "p99", "min", "n", last);
}

std::string comparison(const Peers& peers, const std::string& title, Series Peer::* series)
{
    std::string text = heading(title, "ours/it");
    const double ours = (peers.list.front().*series).p50();
    for (const Peer& peer : peers.list) {
        if ((peer.*series).empty()) continue;
        text += row(peer.name, peer.*series, ours / (peer.*series).p50());
    }
    return text;
}

std::string phases(const Figures& f)
{
    std::string text = fmt::format("\n{:<36} {:>8} {:>8}\n",
                                   "launch, step by step (spaced, medians)", "takes", "at");
    double before = 0;
    for (const auto& [step, at] : f.launch.at) {
        text += fmt::format("  {:<34} {:>8.2f} {:>8.2f}\n", step, at - before, at);
        before = at;
    }
    return text + fmt::format("  {:<34} {:>8} {:>8.2f}\n", "(first byte at the caller)", "",
                              f.first_byte_ms);
}

std::string sessions(const Figures& f, const Options& options)
{
    std::string text = heading(
        fmt::format("a session of /bin/true, spaced {} ms apart", options.spacing_ms), "ours/it");
    text += row("sandboxctl exec", f.sessions.exec, 1.0);
    text += row("crun exec", f.sessions.crun, f.sessions.exec.p50() / f.sessions.crun.p50());
    if (!f.sessions.podman.empty())
        text += row("podman exec", f.sessions.podman,
                    f.sessions.exec.p50() / f.sessions.podman.p50());
    text += row("OPEN to EXIT on an open door", f.sessions.open_door, std::nullopt);
    text += fmt::format("  host to cat to host: {:.2f} GiB/s, both directions added; a plain relay "
                        "between socket pairs: {:.2f}\n",
                        f.sessions.stream, f.sessions.plain);
    return text;
}

std::string inside(const Figures& f)
{
    std::string text = heading("a spawn of a static program, back to back", "ours/it");
    text += row("confine's box", f.spawn.box, 1.0);
    text += row("the raw calls", f.spawn.raw, f.spawn.box.p50() / f.spawn.raw.p50());
    text += heading("in the client, called alone", "");
    for (const Step& step : f.steps) text += row(step.name, step.time, std::nullopt);
    if (const Step* resolve = find(f.steps, "resolve"))
        text += fmt::format("  plans resolved per second: {:.0f}\n", 1000.0 / resolve->time.p50());
    text += heading(fmt::format("with {} sandboxes in the ledger", f.many.count), "");
    text += row("sandboxctl ps", f.many.ps, std::nullopt);
    text += row("sandboxctl reconcile", f.many.reconcile, std::nullopt);
    text += fmt::format("\nmemory in KiB            PSS    RSS\n  shim              {:>10} {:>6}\n"
                        "  log worker        {:>10} {:>6}\n",
                        f.memory.shim_pss, f.memory.shim_rss, f.memory.log_pss, f.memory.log_rss);
    return text;
}

Json json_of(const Series& series)
{
    // Canonical JSON knows no fractions: whole microseconds.
    const auto us = [](double ms) { return static_cast<std::int64_t>(ms * 1000.0); };
    return {{"n", series.size()},
            {"p50_us", us(series.p50())},
            {"p95_us", us(series.percentile(0.95))},
            {"p99_us", us(series.percentile(0.99))},
            {"min_us", us(series.percentile(0.0))}};
}

}  // namespace

std::string render(const Figures& f, const Options& options)
{
    std::string text =
        "Times in milliseconds, from the start of the command to its exit status.\n" + f.machine +
        "\n";
    if (wants(options, "run")) {
        text += comparison(f.peers, fmt::format("spaced {} ms apart, A B A B", options.spacing_ms),
                           &Peer::spaced);
        text += comparison(f.peers, "back to back, A B A B", &Peer::close);
        text += comparison(f.peers, "back to back, in blocks of ten", &Peer::blocks);
    }
    if (wants(options, "exec")) text += sessions(f, options);
    for (const std::string& fact : f.peers.facts) text += "  note: " + fact + "\n";
    if (wants(options, "launch")) text += phases(f);
    if (wants(options, "inside")) text += inside(f);
    text += fmt::format("\n{:<36} {:>8}   {:<12}\n", "target", "is", "at most");
    for (const Target& t : targets(f, options))
        text += fmt::format("  {:<34} {:>8.2f}   {:<6} {:<4} {}\n", t.name, t.value, t.most, t.unit,
                            t.value <= t.most ? "ok" : "MISS");
    return text;
}

Result<std::string> render_json(const Figures& f, const Options& options)
{
    Json json{{"machine", f.machine}, {"spacing_ms", options.spacing_ms}, {"notes", f.peers.facts}};
    for (const Peer& peer : f.peers.list)
        json["peers"][peer.name] = {{"spaced", json_of(peer.spaced)},
                                    {"back_to_back", json_of(peer.close)},
                                    {"blocks", json_of(peer.blocks)}};
    for (const auto& [step, at] : f.launch.at)
        json["launch_at_us"][step] = static_cast<std::int64_t>(at * 1000.0);
    json["sessions"] = {
        {"exec", json_of(f.sessions.exec)},
        {"crun_exec", json_of(f.sessions.crun)},
        {"podman_exec", json_of(f.sessions.podman)},
        {"open_to_exit", json_of(f.sessions.open_door)},
        {"stream_mib_s", static_cast<std::int64_t>(f.sessions.stream * 1024.0)},
        {"plain_relay_mib_s", static_cast<std::int64_t>(f.sessions.plain * 1024.0)}};
    json["spawn"] = {{"box", json_of(f.spawn.box)}, {"raw", json_of(f.spawn.raw)}};
    json["first_byte_us"] = static_cast<std::int64_t>(f.first_byte_ms * 1000.0);
    for (const Step& step : f.steps) json["steps"][step.name] = json_of(step.time);
    json["many"] = {{"count", f.many.count},
                    {"ps", json_of(f.many.ps)},
                    {"reconcile", json_of(f.many.reconcile)}};
    json["memory_kib"] = {{"shim_pss", f.memory.shim_pss},
                          {"shim_rss", f.memory.shim_rss},
                          {"log_pss", f.memory.log_pss},
                          {"log_rss", f.memory.log_rss}};
    for (const Target& t : targets(f, options))
        json["targets"][t.name] = {{"is", fmt::format("{:.3f}", t.value)},
                                   {"at_most", fmt::format("{}", t.most)},
                                   {"unit", t.unit},
                                   {"ok", t.value <= t.most}};
    return TRY(canon::serialize(json)) + "\n";
}

}  // namespace sandbox::bench
