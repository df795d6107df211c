// SPDX-License-Identifier: Apache-2.0
#include "peers.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/diagnostic.hpp"

namespace sandbox::bench {

namespace {

constexpr const char* kWorkload = "/bin/true";
constexpr int kBlock = 10;

std::string find_program(const std::string& name)
{
    for (const char* folder : {"/usr/local/bin/", "/usr/bin/", "/usr/sbin/", "/usr/local/sbin/"}) {
        std::string path = folder + name;
        if (access(path.c_str(), X_OK) == 0) return path;
    }
    return {};
}

Command runtime_command(const std::string& program, const Stage& stage)
{
    return {{program, "--root", stage.state, "run", "--bundle", stage.crun_bundle, "bare"},
            {kPath},
            stage.mount_namespace.get()};
}

// Same namespaces, same tree, no capability; bwrap has neither cgroups nor a filter of its own.
Command bwrap_command(const std::string& program, const plan::ExecutionPlan& plan)
{
    // clang-format off: a list to read as a block
    return {{program, "--unshare-all", "--unshare-user", "--uid", std::to_string(plan->process.uid),
             "--gid", std::to_string(plan->process.gid), "--hostname", plan->network.hostname,
             "--cap-drop", "ALL", "--die-with-parent", "--new-session", "--clearenv", "--ro-bind",
             "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
             "--symlink", "usr/lib64", "/lib64", "--symlink", "usr/sbin", "/sbin", "--proc", "/proc",
             "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run", "--tmpfs", "/var/tmp",
             kWorkload},
            {kPath},
            -1};
    // clang-format on
}

// Its default limits of descriptors need CAP_SYS_RESOURCE; it must share crun's cover.
Command podman_run(const Podman& podman, const Stage& stage)
{
    Command command = podman.command({"run", "--rm"});
    for (const std::string& word : podman.container(stage, {kWorkload}))
        command.argv.push_back(word);
    return command;
}

// Adds it when it works.
Status try_peer(Peers& peers, const std::string& name, Command command)
{
    const Timed timed = TRY(run_timed(command));
    if (timed.status == 0) {
        peers.list.push_back({name, std::move(command), {}, {}, {}});
        return {};
    }
    peers.facts.push_back(name + ": left out, it ended with status " +
                          std::to_string(timed.status) + ": " + escaped(timed.output));
    return {};
}

Status run_once(const Peer& peer, Series* series)
{
    const Timed timed = TRY(run_timed(peer.command));
    if (timed.status != 0)
        return fail(Code::unavailable, peer.name + " ended with status " +
                                           std::to_string(timed.status) + ": " + timed.output);
    if (series != nullptr) series->add(timed.end_ns - timed.start_ns);
    return {};
}

}  // namespace

Command Podman::command(const std::vector<std::string>& words) const
{
    Command whole{{program, "--cgroup-manager", "cgroupfs", "--events-backend", "none", "--root",
                   folder + "/root", "--runroot", folder + "/run", "--tmpdir", folder + "/tmp",
                   "--runtime", runtime},
                  {kPath, "HOME=/root"},
                  mount_namespace};
    whole.argv.insert(whole.argv.end(), words.begin(), words.end());
    return whole;
}

std::vector<std::string> Podman::container(const Stage& stage,
                                           const std::vector<std::string>& argv) const
{
    std::vector<std::string> words{"--network",       "none",
                                   "--cgroup-parent", stage.cgroup + "/podman",
                                   "--log-driver",    "k8s-file",
                                   "--ulimit",        "nofile=1024:1024",
                                   "--ulimit",        "nproc=4096:4096",
                                   "--rootfs",        stage.podman_rootfs};
    words.insert(words.end(), argv.begin(), argv.end());
    return words;
}

Result<Peers> find_peers(const Product& product, const Stage& stage, const Options& options)
{
    Peers peers;
    const std::string crun(product.host().snapshot.value(facts::name::kOciRuntimePath));
    TRY_VOID(try_peer(peers, "sandboxctl", product.run({"--rm"}, {kWorkload})));
    TRY_VOID(try_peer(peers, "crun", runtime_command(crun, stage)));
    if (peers.list.size() != 2)
        return fail(Code::unavailable, "nothing to compare: " + peers.facts.front());
    TRY_VOID(try_peer(peers, kNativePeer, product.run_native({"--rm"}, {kWorkload})));
    if (const std::string program = find_program("runc"); program.empty()) {
        peers.facts.emplace_back("runc: left out, not installed");
    } else {
        TRY_VOID(try_peer(peers, "runc", runtime_command(program, stage)));
        peers.facts.emplace_back("runc: knows no ready-made filter and so runs without one");
    }
    if (const std::string program = find_program("bwrap"); program.empty()) {
        peers.facts.emplace_back("bwrap: left out, not installed");
    } else {
        TRY_VOID(try_peer(peers, "bwrap", bwrap_command(program, product.plan())));
        peers.facts.emplace_back("bwrap: equal namespaces and tree; no cgroups, no filter, no log");
    }
    if (const std::string program = find_program("podman"); program.empty()) {
        peers.facts.emplace_back("podman: left out, not installed");
    } else if (!options.podman) {
        peers.facts.emplace_back("podman: left out, --no-podman");
    } else {
        peers.podman = Podman{program, crun, product.work() + "/podman",
                              stage.mount_namespace.get()};
        TRY_VOID(try_peer(peers, "podman", podman_run(*peers.podman, stage)));
    }
    return peers;
}

Status measure_peers(Peers& peers, const Options& options)
{
    for (int i = -options.warm_up; i < options.runs; ++i) {
        for (Peer& peer : peers.list) {
            pause_between(options);
            reap_ended();
            TRY_VOID(run_once(peer, i < 0 ? nullptr : &peer.spaced));
        }
    }
    TRY_VOID(reap_all());
    for (int i = -options.warm_up; i < options.runs; ++i)
        for (Peer* peer : {&peers.list[0], &peers.list[1]})
            TRY_VOID(run_once(*peer, i < 0 ? nullptr : &peer->close));
    for (int done = 0; done < options.runs; done += kBlock) {
        for (Peer& peer : peers.list) {
            TRY_VOID(reap_all());
            TRY_VOID(run_once(peer, nullptr));
            for (int i = 0; i < std::min(kBlock, options.runs - done); ++i)
                TRY_VOID(run_once(peer, &peer.blocks));
        }
    }
    return reap_all();
}

}  // namespace sandbox::bench
