// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "sys/file.hpp"
#include "sys/process.hpp"

namespace sandbox::testing {

// Runs `body` in a forked child; its return value (0..255) is the exit code. A child that does not
// end in time is killed and reported as signal 9.
template <class Body>
sys::ExitStatus in_child(Body&& body)
{
    auto child = sys::clone_process({});
    EXPECT_TRUE(child.has_value());
    if (!child) return sys::ExitStatus{255, 0, false};
    if (child->pid == 0) ::_exit(body());
    const sys::Pidfd handle(std::move(child->pidfd), child->pid);
    auto status = handle.wait_exit(sys::Deadline::after(Millis(60'000)));
    if (status && *status) return **status;
    ADD_FAILURE() << "a child did not end within 60 s";
    (void)handle.send_signal(SIGKILL);
    (void)handle.wait_exit(sys::Deadline::never());
    return sys::ExitStatus{0, SIGKILL, false};
}

inline bool is_root() { return ::geteuid() == 0; }

// A folder below /tmp, removed with all that is in it.
class TempDir {
public:
    TempDir()
    {
        std::string name = "/tmp/sandbox-unit-XXXXXX";
        path_ = ::mkdtemp(name.data()) != nullptr ? name : std::string();
        EXPECT_FALSE(path_.empty());
    }
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;
    ~TempDir() { EXPECT_TRUE(sys::remove_tree_at(AT_FDCWD, path_).has_value()); }
    const std::string& path() const { return path_; }
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

}  // namespace sandbox::testing

// A test whose control does not work proves nothing: it says so and is skipped.
#define SKIP_VACUOUS(why)                                       \
    do {                                                        \
        std::printf("VACUOUS: %s\n", std::string(why).c_str()); \
        GTEST_SKIP() << "VACUOUS: " << (why);                   \
    } while (false)
