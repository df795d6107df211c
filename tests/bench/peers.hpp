// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "product.hpp"
#include "stage.hpp"
#include "timed.hpp"

namespace sandbox::bench {

inline constexpr const char* kNativePeer = "sandboxctl, native driver";

struct Peer {
    std::string name;
    Command command;
    Series spaced;
    Series close;   // back to back, A B A B: ours and bare crun only
    Series blocks;  // back to back, ten of each in turn
};

// Its global options, so that it keeps everything in one folder of ours.
struct Podman {
    std::string program;
    std::string runtime;
    std::string folder;
    int mount_namespace = -1;

    Command command(const std::vector<std::string>& words) const;
    // Options and rootfs of `run`, then the command.
    std::vector<std::string> container(const Stage& stage,
                                       const std::vector<std::string>& argv) const;
};

struct Peers {
    std::vector<Peer> list;          // ours first, bare crun second
    std::optional<Podman> podman;    // where it is installed and wanted
    std::vector<std::string> facts;  // who is absent and why, and what is not equal
};

// Each is tried once; who does not run /bin/true is left out, with the fact.
[[nodiscard]] Result<Peers> find_peers(const Product& product, const Stage& stage,
                                       const Options& options);

// Spaced: A B C A B C, a pause before each. Back to back twice: ours and bare crun in turn, and in
// blocks of ten. In turn, what one leaves to do after its answer falls on the other, and each pays
// for its own first write to a cgroup.procs; in blocks all of that falls on itself, and the kernel
// hides that write behind the last one. The first of a block is not counted.
[[nodiscard]] Status measure_peers(Peers& peers, const Options& options);

}  // namespace sandbox::bench
