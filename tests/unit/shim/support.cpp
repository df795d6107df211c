// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "sys/file.hpp"

namespace sandbox::shim::test {

std::vector<LogRecord> records_of(const std::string& file)
{
    std::vector<LogRecord> records;
    const std::string text = read_bytes(file);
    std::string_view rest = text;
    while (!rest.empty()) {
        const std::size_t end = rest.find('\n');
        EXPECT_NE(end, std::string_view::npos) << file << " ends inside a line";
        if (end == std::string_view::npos) break;
        const auto record = decode(rest.substr(0, end));
        if (record)
            records.push_back(*record);
        else
            ADD_FAILURE() << file << ": " << rest.substr(0, end);
        rest.remove_prefix(end + 1);
    }
    return records;
}

std::string in_child(const std::function<std::string()>& work)
{
    sys::Pipe pipe = sys::make_pipe().value();
    const pid_t child = fork();
    if (child == 0) {
        std::string verdict;
        if (unshare(CLONE_NEWNS) != 0 ||
            mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
            verdict = std::string("no mount namespace: ") + std::strerror(errno);
        } else {
            verdict = work();
        }
        static_cast<void>(sys::write_all(pipe.write.get(), verdict));
        _exit(0);
    }
    pipe.write.reset();
    std::string verdict = sys::read_all(pipe.read.get(), 1U << 20).value();
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status)) verdict += " (the child died)";
    return verdict;
}

LaunchRequest request_below(const std::string& root)
{
    LaunchRequest request;
    request.binding.id = ledger::test::id(1);
    request.binding.name = SandboxName("web");
    request.binding.generation = 1;
    request.binding.id_base = 0x10000000;
    request.binding.run_dir = HostPath(root + "/run/" + request.binding.id.str());
    request.binding.state_dir = HostPath(root + "/sandboxes/" + request.binding.id.str());
    request.binding.cgroup = "/sandbox-unit-test-absent/" + request.binding.id.str();
    request.plan_file = "{}\n";
    request.operation = "op-1";
    request.state_root = root;
    request.cgroup_parent = "/sandbox-unit-test-absent";
    return request;
}

}  // namespace sandbox::shim::test
