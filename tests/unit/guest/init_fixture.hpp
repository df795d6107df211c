// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "peer.hpp"
#include "sys/process.hpp"
#include "wire/wire.hpp"

namespace sandbox::guest::test {

// The real program, outside any sandbox: a child with its channel and its record.
class InitTest : public ::testing::Test {
protected:
    void SetUp() override;
    void TearDown() override;

    // A record like the driver's; tests change it before start().
    wire::Bootstrap record();
    void start(const wire::Bootstrap& boot);
    // start() and port 5000 up to READY.
    void start_ready();
    Peer stream(wire::Port port, const std::string& session = "s");
    // Exec session of /bin/sh -c, gate off.
    wire::Open shell(const std::string& script) const;
    Ran run(const wire::Open& open);
    Ran run_shell(const std::string& script) { return run(shell(script)); }
    // The program still answers: a fresh session ends with 0.
    void expect_serving();
    bool wait_gone();
    std::uint64_t cpu_ticks() const;
    std::vector<pid_t> children() const;

    sys::UniqueFd channel_;
    std::optional<sys::Pidfd> init_;
    std::unique_ptr<Peer> control_;
    bool reaped_ = false;
};

}  // namespace sandbox::guest::test
