// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "peers.hpp"
#include "product.hpp"
#include "stage.hpp"
#include "timed.hpp"

// Sessions inside a running sandbox, beside `crun exec` into an equal container.
namespace sandbox::bench {

struct SessionTimes {
    Series exec;         // sandboxctl exec NAME /bin/true
    Series crun;         // crun exec NAME /bin/true
    Series podman;       // podman exec NAME /bin/true; empty where it does not run
    Series open_door;    // OPEN to EXIT of /bin/true on a stream that is open already
    double stream = 0;   // GiB/s host to cat to host, both directions added
    double plain = 0;    // the same bytes through a relay between two socket pairs
};

[[nodiscard]] Result<SessionTimes> measure_sessions(const Product& product, const Stage& stage,
                                                    const Peers& peers, const Options& options);

}  // namespace sandbox::bench
