// SPDX-License-Identifier: Apache-2.0
#include "spawn.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "confine/box.hpp"
#include "sys/file.hpp"
#include "sys/mount.hpp"
#include "sys/seccomp/compile.hpp"
#include "sys/seccomp/load.hpp"

namespace sandbox::bench {

namespace {

constexpr std::uint32_t kBase = 0x30000000;  // ids that nobody has
constexpr std::uint32_t kCount = 65536;
constexpr std::chrono::milliseconds kPatience{10'000};

confine::BoxSpec spec()
{
    confine::BoxSpec spec;
    spec.uids = {{0, kBase, kCount}};
    spec.gids = spec.uids;
    spec.owner = kBase;
    spec.hostname = "bench";
    spec.shm_size = 1U << 20;
    spec.filter = sys::seccomp::compile(sys::seccomp::Profile::outer, *sys::seccomp::native_arch());
    return spec;
}

// No wrapper, no check but one: what the calls alone take.
[[noreturn]] void raw_child(int go, int program, const std::vector<sock_filter>& filter)
{
    char byte = 0;
    if (::read(go, &byte, 1) != 1) ::_exit(9);
    ::syscall(SYS_setresgid, 0, 0, 0);
    ::syscall(SYS_setresuid, 0, 0, 0);
    ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    ::mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, nullptr);
    ::mkdir("/tmp/usr", 0755);
    ::mount("/usr", "/tmp/usr", nullptr, MS_BIND | MS_REC, nullptr);
    if (::chdir("/tmp") != 0 || ::syscall(SYS_pivot_root, ".", ".") != 0) ::_exit(8);
    ::umount2(".", MNT_DETACH);
    if (sys::seccomp::load(filter) != 0) ::_exit(7);
    char* argv[] = {const_cast<char*>("nothing"), nullptr};
    char* envp[] = {nullptr};
    ::syscall(SYS_execveat, program, "", argv, envp, AT_EMPTY_PATH);
    ::_exit(6);
}

Status reap(const sys::Pidfd& process, const char* who)
{
    const auto ended = TRY(process.wait_exit(sys::Deadline::after(kPatience)));
    if (ended && ended->code == 0 && ended->signal == 0) return {};
    return fail(Code::unavailable,
                std::string(who) + " spawn ended with " + std::to_string(ended ? ended->code : -1));
}

Status spawn_raw(int program, const confine::BoxSpec& box)
{
    sys::Pipe go = TRY(sys::make_pipe());
    sys::CloneOptions options;
    options.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
                    CLONE_NEWNET | CLONE_NEWCGROUP;
    auto child = TRY(sys::clone_process(options));
    if (child.pid == 0) raw_child(go.read.get(), program, box.filter);
    const sys::ProcDir proc = TRY(sys::ProcDir::open(child.pid));
    TRY_VOID(sys::write_control_at(proc.fd(), "gid_map", sys::format_id_map(box.gids)));
    TRY_VOID(sys::write_control_at(proc.fd(), "uid_map", sys::format_id_map(box.uids)));
    TRY_VOID(sys::write_all(go.write.get(), "g"));
    return reap(sys::Pidfd(std::move(child.pidfd), child.pid), "the raw");
}

Status build()
{
    sys::MountAttributes flags;
    flags.no_suid = true;
    flags.no_dev = true;
    const sys::UniqueFd tree = TRY(sys::make_tmpfs(1U << 20, 0755, flags));
    for (const char* name : {"dev", "proc", "usr"}) TRY_VOID(sys::mkdir_at(tree.get(), name, 0755));
    TRY_VOID(sys::attach_tree(tree.get(), AT_FDCWD, "/tmp"));
    const sys::UniqueFd usr = TRY(sys::clone_tree(AT_FDCWD, "/usr", sys::Depth::recursive));
    return sys::attach_tree(usr.get(), tree.get(), "usr");
}

Status spawn_box(int program, const confine::BoxSpec& box)
{
    const auto deadline = sys::Deadline::after(kPatience);
    confine::BoxOrder order;
    order.descriptors = {0, 1, 2};
    order.diagnostics = 2;
    order.program = program;
    order.build = build;
    order.root = "/tmp";
    auto started = TRY(confine::Box::start(box, order, deadline));
    return reap(TRY(std::move(started).finish(deadline)), "confine's");
}

}  // namespace

Result<SpawnTimes> measure_spawn(int repetitions)
{
    SpawnTimes times;
    const confine::BoxSpec box = spec();
    const sys::UniqueFd program = TRY(sys::open_file(BENCH_NOTHING, O_RDONLY));
    constexpr int kWarmUp = 5;
    for (int i = -kWarmUp; i < repetitions; ++i) {
        const std::uint64_t start = now_ns();
        TRY_VOID(spawn_raw(program.get(), box));
        const std::uint64_t middle = now_ns();
        TRY_VOID(spawn_box(program.get(), box));
        if (i < 0) continue;
        times.raw.add(middle - start);
        times.box.add(now_ns() - middle);
    }
    return times;
}

}  // namespace sandbox::bench
