// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "init_fixture.hpp"
#include "sys/file.hpp"
#include "sys/procfs.hpp"

namespace sandbox::guest::test {
namespace {

constexpr std::string_view kValue = "correct-horse-battery-staple-0123456789";

wire::ByteVector bytes_of_value()
{
    const auto bytes = std::as_bytes(std::span(kValue));
    return {bytes.begin(), bytes.end()};
}

class GuestSecrets : public InitTest {
protected:
    void SetUp() override
    {
        InitTest::SetUp();
        char pattern[] = "/dev/shm/sandbox-secret-XXXXXX";  // a tmpfs
        ASSERT_NE(::mkdtemp(pattern), nullptr);
        folder_ = pattern;
        owner_ = record().permitted_ids[0];
        ASSERT_EQ(::chown(pattern, owner_.uid, owner_.gid), 0);
        start(record());
        control_ = std::make_unique<Peer>(stream(wire::Port::control, ""));
        control_->send(wire::Hello{});
        ASSERT_TRUE(control_->control<wire::Welcome>());
    }
    void TearDown() override
    {
        InitTest::TearDown();
        EXPECT_TRUE(sys::remove_tree_at(AT_FDCWD, folder_));
    }

    void provision()
    {
        control_->send(wire::Provision{});
        ASSERT_TRUE(control_->control<wire::Provisioned>());
    }
    void ready()
    {
        control_->send(wire::Ready{1});
        ASSERT_TRUE(control_->control<wire::ReadyAck>());
    }
    wire::Secret variable() const
    {
        return {wire::SecretPlace::variable, owner_.uid, owner_.gid, "TOKEN", bytes_of_value()};
    }
    wire::Secret file(const std::string& path) const
    {
        return {wire::SecretPlace::file, owner_.uid, owner_.gid, path, bytes_of_value()};
    }
    bool kept(const wire::Secret& secret)
    {
        control_->send(secret);
        return control_->control<wire::SecretKept>().has_value();
    }
    // The control stream ends with a refusal.
    std::optional<wire::ErrorMessage> refusal(const wire::Secret& secret)
    {
        control_->send(secret);
        return control_->control<wire::ErrorMessage>();
    }
    wire::Open service(const std::string& script) const
    {
        wire::Open open = shell(script);
        open.kind = wire::SessionKind::service;
        return open;
    }
    bool memory_holds_value() const
    {
        const auto process = sys::ProcDir::open(init_->pid());
        const std::string maps = process ? process->text("maps").value_or("") : "";
        const sys::UniqueFd memory(
            ::open(("/proc/" + std::to_string(init_->pid()) + "/mem").c_str(), O_RDONLY));
        EXPECT_TRUE(memory.valid());
        bool found = false;
        for (std::size_t at = 0; at < maps.size();) {
            const std::size_t end = std::min(maps.find('\n', at), maps.size());
            const std::string line = maps.substr(at, end - at);
            at = end + 1;
            if (line.find(" rw") == std::string::npos) continue;
            char* rest = nullptr;
            const std::uint64_t first = std::strtoull(line.c_str(), &rest, 16);
            const std::uint64_t last = std::strtoull(rest + 1, nullptr, 16);
            // A reservation such as a sanitizer's shadow: terabytes of addresses, no bytes of ours.
            if (last - first > std::uint64_t{1} << 30) continue;
            std::string held(last - first, '\0');
            const ssize_t count = ::pread(memory.get(), held.data(), held.size(),
                                          static_cast<off_t>(first));
            if (count <= 0) continue;
            found = found || held.find(kValue) != std::string::npos;
        }
        return found;
    }

    std::string folder_;
    wire::PermittedId owner_;
};

}  // namespace

TEST_F(GuestSecrets, GivesTheVariableToTheServiceAndToNobodyElse)
{
    provision();
    ASSERT_TRUE(kept(variable()));
    EXPECT_TRUE(memory_holds_value());  // the search finds what is there
    ready();
    EXPECT_EQ(run_shell("echo \"<$TOKEN>\"").out, "<>\n");
    EXPECT_EQ(run(service("echo \"<$TOKEN>\"")).out, "<" + std::string(kValue) + ">\n");
    EXPECT_EQ(run_shell("echo \"<$TOKEN>\"").out, "<>\n");
    EXPECT_FALSE(memory_holds_value());
}

TEST_F(GuestSecrets, MakesAFileOfTheUsersOwnAndForgetsIt)
{
    provision();
    ASSERT_TRUE(kept(file(folder_ + "/key")));
    EXPECT_FALSE(memory_holds_value());
    struct stat info{};
    ASSERT_EQ(::stat((folder_ + "/key").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0400U);
    EXPECT_EQ(info.st_uid, owner_.uid);
    EXPECT_EQ(info.st_gid, owner_.gid);
    EXPECT_EQ(sys::read_file(folder_ + "/key", 4096).value_or(""), kValue);
}

TEST_F(GuestSecrets, TakesNoneBeforeProvisionNorAfterReady)
{
    const auto early = refusal(variable());
    ASSERT_TRUE(early);
    EXPECT_EQ(early->code, static_cast<std::uint16_t>(wire::WireError::not_provisioned));
    control_ = std::make_unique<Peer>(stream(wire::Port::control, ""));
    control_->send(wire::Hello{});
    ASSERT_TRUE(control_->control<wire::Welcome>());
    provision();
    ready();
    const auto late = refusal(variable());
    ASSERT_TRUE(late);
    EXPECT_EQ(late->code, static_cast<std::uint16_t>(wire::WireError::refused));
    EXPECT_EQ(late->detail.find(kValue), std::string::npos);
}

TEST_F(GuestSecrets, WritesOnNoDiskOverNothingAndForNobodyElse)
{
    ASSERT_EQ(::symlink("/tmp", (folder_ + "/link").c_str()), 0);
    ASSERT_EQ(::symlink("/tmp/elsewhere", (folder_ + "/dangling").c_str()), 0);
    ASSERT_TRUE(sys::write_file_at(AT_FDCWD, folder_ + "/there", "old", 0644));
    wire::Secret foreign = file(folder_ + "/key");
    foreign.uid = owner_.uid + 1;
    bool first = true;
    for (const wire::Secret& secret :
         {file("/usr/key"), file("/nowhere/key"), file(folder_ + "/link/key"),
          file(folder_ + "/dangling"), file(folder_ + "/there"), file("/"), foreign}) {
        control_ = std::make_unique<Peer>(stream(wire::Port::control, ""));
        control_->send(wire::Hello{});
        ASSERT_TRUE(control_->control<wire::Welcome>());
        if (std::exchange(first, false)) provision();
        EXPECT_TRUE(refusal(secret)) << secret.name;
    }
    EXPECT_EQ(sys::read_file(folder_ + "/there", 16).value_or(""), "old");
    EXPECT_NE(::access("/tmp/elsewhere", F_OK), 0);
    EXPECT_NE(::access((folder_ + "/key").c_str(), F_OK), 0);
}

}  // namespace sandbox::guest::test
