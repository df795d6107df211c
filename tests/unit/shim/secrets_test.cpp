// SPDX-License-Identifier: Apache-2.0
#include "shim/secrets.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "sys/file.hpp"

namespace sandbox::shim {
namespace {

class SecretStore : public testing::Test {
protected:
    void SetUp() override
    {
        char pattern[] = "/tmp/sandbox-store-XXXXXX";
        ASSERT_NE(::mkdtemp(pattern), nullptr);
        store_ = pattern;
    }
    void TearDown() override { EXPECT_TRUE(sys::remove_tree_at(AT_FDCWD, store_)); }

    std::string at(const std::string& name) const { return store_ + "/" + name; }
    void put(const std::string& name, const std::string& value, mode_t mode = 0600)
    {
        const auto fd = sys::open_file(at(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        ASSERT_TRUE(fd);
        ASSERT_TRUE(sys::write_all(fd->get(), value));
        ASSERT_EQ(::fchmod(fd->get(), mode), 0);
    }
    Code refusal(const std::string& name) const
    {
        const auto read = read_secret(store_, name);
        if (read) return Code::internal;
        EXPECT_NE(read.error().message().find(store_), std::string::npos) << read.error().message();
        EXPECT_EQ(read.error().message().find("hunter2"), std::string::npos);
        return read.error().code();
    }

    std::string store_;
};

TEST_F(SecretStore, GivesTheBytesOfAFileThatIsTheOwnersAlone)
{
    const std::string value("a\0b\n", 4);
    put("TOKEN", value, 0400);
    const auto read = read_secret(store_, "TOKEN");
    ASSERT_TRUE(read) << read.error().message();
    const auto bytes = read->bytes();
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), value);
    put("EMPTY", "");
    EXPECT_TRUE(read_secret(store_, "EMPTY"));
    put("MOST", std::string(wire::kMaxSecretValue, 'x'));
    EXPECT_TRUE(read_secret(store_, "MOST"));
}

TEST_F(SecretStore, RefusesWhatOthersCouldReadOrChange)
{
    put("SHARED", "hunter2", 0640);
    EXPECT_EQ(refusal("SHARED"), Code::permission_denied);
    put("OWNED", "hunter2");
    if (::geteuid() == 0) {
        ASSERT_EQ(::chown(at("OWNED").c_str(), 1000, 1000), 0);
        EXPECT_EQ(refusal("OWNED"), Code::permission_denied);
    }
    put("TOKEN", "hunter2");
    ASSERT_EQ(::chmod(store_.c_str(), 0770), 0);
    EXPECT_EQ(refusal("TOKEN"), Code::permission_denied);
}

TEST_F(SecretStore, RefusesWhatIsNoFileOfTheStore)
{
    put("TOKEN", "hunter2");
    ASSERT_EQ(::symlink("TOKEN", at("LINK").c_str()), 0);
    ASSERT_EQ(::mkfifo(at("FIFO").c_str(), 0600), 0);
    ASSERT_EQ(::mkdir(at("FOLDER").c_str(), 0700), 0);
    for (const char* name : {"LINK", "FIFO", "FOLDER", "../TOKEN", "/etc/shadow"})
        EXPECT_FALSE(read_secret(store_, name)) << name;
    put("LONG", std::string(wire::kMaxSecretValue + 1, 'x'));
    EXPECT_EQ(refusal("LONG"), Code::invalid_argument);
}

TEST_F(SecretStore, AMissingOneSaysWhereToPutIt)
{
    EXPECT_EQ(refusal("TOKEN"), Code::not_found);
    const auto read = read_secret(store_ + "/none", "TOKEN");
    ASSERT_FALSE(read);
    EXPECT_NE(read.error().message().find("install -m 0600"), std::string::npos)
        << read.error().message();
}

TEST(LockedMemory, IsEmptyInAChildUnlessLent)
{
    auto memory = sys::LockedMemory::make(64);
    ASSERT_TRUE(memory) << memory.error().message();
    memory->bytes()[0] = std::byte{42};
    const auto seen_by_child = [&] {
        const pid_t child = ::fork();
        if (child == 0) ::_exit(static_cast<int>(memory->bytes()[0]));
        int status = 0;
        ::waitpid(child, &status, 0);
        return WEXITSTATUS(status);
    };
    EXPECT_EQ(seen_by_child(), 0);
    ASSERT_TRUE(memory->let(sys::LockedMemory::Children::see_it));
    EXPECT_EQ(seen_by_child(), 42);
    sys::LockedMemory moved = std::move(*memory);
    EXPECT_TRUE(memory->empty());
    EXPECT_EQ(moved.bytes()[0], std::byte{42});
}

}  // namespace
}  // namespace sandbox::shim
