// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "../fixture.hpp"
#include "driver/microvm/evidence.hpp"
#include "driver/microvm/launch.hpp"
#include "driver/microvm/qmp.hpp"
#include "sys/artifact/sealed.hpp"
#include "sys/file.hpp"

// A guest that really boots, in its jails, under emulation.
namespace sandbox::driver::microvm {
namespace {

const char* const kVmm = "/usr/bin/qemu-system-x86_64";
const char* const kServer = "/usr/lib/qemu/virtiofsd";

std::string hash_of(const std::string& path)
{
    const auto file = sys::open_file(path, O_RDONLY);
    return file ? sys::digest_file(file->get()).value_or("unreadable") : "missing";
}

class Machine : public testing::Test {
protected:
    void SetUp() override
    {
        if (::geteuid() != 0) GTEST_SKIP() << "jails need root, and this is uid " << ::geteuid();
        const char* named = std::getenv("SANDBOX_GUEST");
        guest_ = named != nullptr ? named : SANDBOX_GUEST_DIR;
        for (const std::string& wanted :
             {guest_ + "/vmlinux", guest_ + "/initrd", std::string(kVmm), std::string(kServer)})
            if (::access(wanted.c_str(), R_OK) != 0)
                GTEST_SKIP() << "no " << wanted << " (dev/guest, dev/deps --guest)";
        const auto host = sys::cgroup::detect();
        if (!host || host->with("memory") == nullptr || host->with("pids") == nullptr)
            GTEST_SKIP() << "this host has no cgroup controllers memory and pids";
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
        prepare(*host);
    }

    void TearDown() override
    {
        if (binding_.cgroup.empty()) return;
        launched_.reset();
        EXPECT_TRUE(kill_all(binding_.cgroup));
        while (sys::reap_any().value_or(std::nullopt)) {}
        EXPECT_TRUE(remove_cgroups(binding_.cgroup));
    }

    void prepare(const sys::cgroup::Host& host)
    {
        plan::PlanContent content = test::plain_content(profile::Driver::microvm);
        content.isolation_class = plan::IsolationClass::emulated_vm;
        content.rootfs.ownership = plan::Ownership::overflow;
        content.security.landlock_abi = 0;
        content.resources = {plan::CgroupVersion::v2,
                             {"memory", "pids"},
                             {{"memory", "memory.max", "100663296"}, {"pids", "pids.max", "64"}},
                             {}};
        content.artifacts = {{"vmm", hash_of(kVmm)},
                             {"virtiofsd", hash_of(kServer)},
                             {"guest.kernel", hash_of(guest_ + "/vmlinux")},
                             {"guest.initrd", hash_of(guest_ + "/initrd")}};
        plan::MicrovmPlan machine;
        machine.accelerator = plan::Accelerator::tcg;
        machine.guest_arch = "x86_64";
        machine.memory = Bytes{192ULL << 20};
        machine.overhead = Bytes{256ULL << 20};
        machine.shares = {{HostPath("/usr"), true, plan::Ownership::overflow}};
        const bool v2 = host.with("memory")->version == sys::cgroup::Version::v2;
        machine.host.version = v2 ? plan::CgroupVersion::v2 : plan::CgroupVersion::v1;
        machine.host.controllers = {"memory", "pids"};
        machine.host.workload = {
            {"memory", v2 ? "memory.max" : "memory.limit_in_bytes", "469762048"}};
        content.microvm = machine;
        plan_.emplace(test::sealed(std::move(content)));
        char id[33];
        std::snprintf(id, sizeof id, "%032x", static_cast<unsigned>(::getpid()));
        binding_ = test::sample_binding();
        binding_.id = SandboxId(id);
        binding_.cgroup = "/sandbox-test-" + std::to_string(::getpid()) + "/" + id;
    }

    // Empty: it is up.
    std::string start()
    {
        const auto artifact = backend().compile(*plan_, binding_);
        if (!artifact) return artifact.error().message();
        auto programs = seal(
            {{"vmm", {HostPath(kVmm), plan_->content().artifacts.at("vmm")}},
             {"virtiofsd", {HostPath(kServer), plan_->content().artifacts.at("virtiofsd")}},
             {"guest.kernel",
              {HostPath(guest_ + "/vmlinux"), plan_->content().artifacts.at("guest.kernel")}},
             {"guest.initrd",
              {HostPath(guest_ + "/initrd"), plan_->content().artifacts.at("guest.initrd")}}});
        if (!programs) return programs.error().message();
        auto groups = make_groups(*plan_, binding_);
        if (!groups) return groups.error().message();
        groups_.emplace(std::move(*groups));
        auto launched = backend().launch(*plan_, binding_, **artifact, *programs,
                                         {.groups = &*groups_});
        if (!launched) return launched.error().message();
        launched_.emplace(std::move(*launched));
        return {};
    }

    std::string guest_;
    std::optional<plan::ExecutionPlan> plan_;
    Binding binding_;
    std::optional<Groups> groups_;
    std::optional<Launched> launched_;
};

TEST_F(Machine, BootsInItsJailsAndIsSeenToBeInThem)
{
    ASSERT_EQ(start(), "");
    const auto evidence = observe_machine(*plan_, binding_, *launched_, &*groups_);
    ASSERT_TRUE(evidence) << evidence.error().message();
    for (const Evidence& one : *evidence) {
        EXPECT_TRUE(one.held) << one.name << ": " << one.observed;
        if (one.name.starts_with("guest.")) {
            EXPECT_TRUE(one.observed.starts_with(kGuestReported)) << one.name;
        }
    }
    for (const char* name :
         {"vmm.user", "vmm.capabilities", "vmm.no_new_privileges", "vmm.seccomp", "vmm.namespaces",
          "vmm.root", "vmm.core", "vmm.lifetime", "vmm.devices", "vmm.accelerator",
          "vmm.cgroup.own", "virtiofsd.confinement", "share:/usr"})
        EXPECT_NE(std::ranges::find(*evidence, name, &Evidence::name), evidence->end()) << name;
    Qmp qmp(sys::duplicate(launched_->monitor.get()).value());
    const auto patience = [] { return sys::Deadline::after(Millis{10'000}); };
    EXPECT_EQ(qmp.ask(QmpCommand::status, patience()).value().status, "running");
    EXPECT_TRUE(qmp.ask(QmpCommand::stop, patience()));
    EXPECT_EQ(qmp.ask(QmpCommand::status, patience()).value().status, "paused");
    EXPECT_TRUE(qmp.ask(QmpCommand::cont, patience()));

    // Everything ends with what the owner holds.
    const auto vmm = sys::Pidfd::open(launched_->machine.pid()).value();
    launched_->held.clear();
    EXPECT_TRUE(vmm.wait_ended(patience()).value());
}

TEST_F(Machine, SaysWhyAGuestDidNotComeUp)
{
    // Bytes that no machine runs, with the right digest: the pin holds, the boot does not.
    char name[] = "/tmp/sandbox-kernel-XXXXXX";
    const sys::UniqueFd file(::mkstemp(name));
    ASSERT_TRUE(sys::write_all(file.get(), std::string(8192, 'x')));
    plan::PlanContent content = plan_->content();
    content.artifacts["guest.kernel"] = hash_of(name);
    plan_.emplace(test::sealed(std::move(content)));
    const std::string folder = guest_;
    const auto artifact = backend().compile(*plan_, binding_).value();
    auto programs = seal(
        {{"vmm", {HostPath(kVmm), plan_->content().artifacts.at("vmm")}},
         {"virtiofsd", {HostPath(kServer), plan_->content().artifacts.at("virtiofsd")}},
         {"guest.kernel", {HostPath(name), hash_of(name)}},
         {"guest.initrd", {HostPath(folder + "/initrd"), hash_of(folder + "/initrd")}}});
    ::unlink(name);
    ASSERT_TRUE(programs) << programs.error().message();
    groups_.emplace(make_groups(*plan_, binding_).value());
    const auto launched = backend().launch(*plan_, binding_, *artifact, *programs,
                                           {.groups = &*groups_});
    ASSERT_FALSE(launched);
    EXPECT_NE(launched.error().message().find("VMM"), std::string::npos)
        << launched.error().message();
    EXPECT_TRUE(groups_->top->processes().value().empty());
}

TEST(MachinePin, RefusesAFileWithAnotherDigestOrThatOthersCanWrite)
{
    char name[] = "/tmp/sandbox-pin-XXXXXX";
    const sys::UniqueFd file(::mkstemp(name));
    ASSERT_TRUE(sys::write_all(file.get(), "kernel"));
    EXPECT_TRUE(seal({{"guest.kernel", {HostPath(name), hash_of(name)}}}));
    EXPECT_FALSE(seal({{"guest.kernel", {HostPath(name), hash_of("/etc/hostname")}}}));
    ASSERT_EQ(::fchmod(file.get(), 0666), 0);
    EXPECT_FALSE(seal({{"guest.kernel", {HostPath(name), hash_of(name)}}}));
    ::unlink(name);
}

}  // namespace
}  // namespace sandbox::driver::microvm
