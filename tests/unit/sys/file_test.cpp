// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <gtest/gtest.h>

#include "child.hpp"
#include "sys/artifact/sealed.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::sys {

namespace {

using testing::TempDir;

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

bool closes_on_exec(int fd) { return (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0; }

std::size_t open_count()
{
    const auto dir = open_dir("/proc/self/fd");
    return open_numbers(dir->get(), 65536)->size();
}

}  // namespace

TEST(UniqueFd, ClosesOnceAndMovesWithoutClosing)
{
    auto pipe = make_pipe();
    const int number = pipe->read.get();
    UniqueFd moved = std::move(pipe->read);
    EXPECT_FALSE(pipe->read.valid());
    EXPECT_TRUE(is_open(number));
    moved = UniqueFd();
    EXPECT_FALSE(is_open(number));
    const int kept = pipe->write.release();
    EXPECT_TRUE(is_open(kept));
    close_number(kept);
}

TEST(UniqueFd, IsBornWithCloseOnExec)
{
    const auto file = open_file("/dev/null", O_RDONLY);
    const auto copy = duplicate(file->get(), 100);
    EXPECT_TRUE(closes_on_exec(file->get()));
    EXPECT_TRUE(closes_on_exec(copy->get()));
    EXPECT_GE(copy->get(), 100);
    EXPECT_TRUE(keep_on_exec(copy->get()).has_value());
    EXPECT_FALSE(closes_on_exec(copy->get()));
}

TEST(OpenAt2, KeepsNamesBeneathTheFolder)
{
    const TempDir dir;
    ASSERT_TRUE(write_file_at(AT_FDCWD, dir / "inner", "x", 0600).has_value());
    ASSERT_EQ(::symlink("/etc/passwd", (dir / "link").c_str()), 0);
    const auto root = open_dir(dir.path());
    EXPECT_TRUE(open_at2(root->get(), "inner", O_RDONLY, 0, kBeneath).has_value());
    for (const char* name : {"link", "../etc", "/etc/passwd", ".."})
        EXPECT_FALSE(open_at2(root->get(), name, O_RDONLY, 0, kBeneath).has_value()) << name;
}

TEST(OpenAt, RefusesANulByte)
{
    const auto opened = open_file(std::string("/dev/null\0x", 11), O_RDONLY);
    ASSERT_FALSE(opened.has_value());
    EXPECT_EQ(opened.error().code(), Code::invalid_argument);
}

TEST(ReadAll, TakesExactlyTheLimitAndNotAByteMore)
{
    const TempDir dir;
    ASSERT_TRUE(write_file_at(AT_FDCWD, dir / "f", std::string(20'000, 'a'), 0644).has_value());
    EXPECT_EQ(read_file(dir / "f", 20'000)->size(), 20'000U);
    const auto cut = read_file(dir / "f", 19'999);
    ASSERT_FALSE(cut.has_value());
    EXPECT_EQ(cut.error().code(), Code::resource_exhausted);
    EXPECT_EQ(read_file(dir / "none", 1).error().code(), Code::not_found);
}

TEST(WriteFile, NeverTakesANameThatIsThere)
{
    const TempDir dir;
    ASSERT_EQ(::symlink("/tmp/sandbox-unit-nowhere", (dir / "f").c_str()), 0);
    const auto written = write_file_at(AT_FDCWD, dir / "f", "x", 0600);
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().code(), Code::already_exists);
}

TEST(ReplaceFile, LeavesTheNewBytesAndNoTemporary)
{
    const TempDir dir;
    const auto root = open_dir(dir.path());
    ASSERT_TRUE(replace_file_at(root->get(), "f", "one", 0640).has_value());
    ASSERT_TRUE(replace_file_at(root->get(), "f", "two", 0640).has_value());
    EXPECT_EQ(*read_file_at(root->get(), "f", 10), "two");
    EXPECT_EQ(*list_dir(root->get()), std::vector<std::string>{"f"});
    struct stat info{};
    ASSERT_EQ(::stat((dir / "f").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777U, 0640U);
}

TEST(RemoveTree, TakesFoldersAndLinksButNotTheirTargets)
{
    const TempDir dir;
    const TempDir other;
    ASSERT_TRUE(write_file_at(AT_FDCWD, other / "kept", "x", 0600).has_value());
    ASSERT_TRUE(make_dirs(dir / "a/b/c").has_value());
    ASSERT_TRUE(make_dirs(dir / "a/b/c").has_value());
    ASSERT_EQ(::symlink(other.path().c_str(), (dir / "a/b/link").c_str()), 0);
    const auto root = open_dir(dir.path());
    EXPECT_TRUE(remove_tree_at(root->get(), "a").has_value());
    EXPECT_TRUE(remove_tree_at(root->get(), "a").has_value());
    EXPECT_TRUE(list_dir(root->get())->empty());
    EXPECT_EQ(*read_file(other / "kept", 10), "x");
}

TEST(Memfd, CannotBeChangedOnceSealed)
{
    const auto sealed = sealed_memfd("unit", "bytes");
    ASSERT_TRUE(sealed.has_value());
    EXPECT_TRUE(*is_sealed(sealed->get()));
    EXPECT_EQ(*read_all(sealed->get(), 10), "bytes");
    EXPECT_EQ(::write(sealed->get(), "x", 1), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_NE(::ftruncate(sealed->get(), 0), 0);
    EXPECT_FALSE(*is_sealed(make_memfd("open")->get()));
}

TEST(PollOne, ReturnsNothingAtTheDeadlineAndTheEventBefore)
{
    const auto pipe = make_pipe();
    EXPECT_EQ(*poll_one(pipe->read.get(), POLLIN, Deadline::after(Millis(1))), 0);
    ASSERT_TRUE(write_all(pipe->write.get(), "x").has_value());
    EXPECT_EQ(*poll_one(pipe->read.get(), POLLIN, Deadline::never()), POLLIN);
}

TEST(Deadline, IsAbsoluteAndNeverOverflows)
{
    EXPECT_EQ(Deadline::never().poll_timeout(), -1);
    EXPECT_FALSE(Deadline::never().passed());
    EXPECT_TRUE(Deadline::after(Millis(0)).passed());
    EXPECT_TRUE(Deadline::after(Millis(-5)).passed());
    EXPECT_EQ(Deadline::after(Millis::max()).poll_timeout(), -1);
    const int left = Deadline::after(Millis(10'000)).poll_timeout();
    EXPECT_GT(left, 9'000);
    EXPECT_LE(left, 10'000);
}

TEST(SendFds, PassesDescriptorsAndBytesAndCredentials)
{
    const auto pair = socket_pair(SocketType::seqpacket);
    ASSERT_TRUE(enable_credentials(pair->second.get()).has_value());
    const auto pipe = make_pipe();
    const int sent = pipe->write.get();
    ASSERT_TRUE(send_fds(pair->first.get(), "hello", {&sent, 1}).has_value());
    const auto received = recv_fds(pair->second.get(), 64, 1);
    ASSERT_TRUE(received.has_value()) << received.error().message();
    EXPECT_EQ(received->bytes, "hello");
    ASSERT_EQ(received->fds.size(), 1U);
    EXPECT_TRUE(closes_on_exec(received->fds[0].get()));
    EXPECT_EQ(received->pid, ::getpid());
    EXPECT_EQ(received->uid, ::getuid());
    ASSERT_TRUE(write_all(received->fds[0].get(), "x").has_value());
    EXPECT_EQ(*poll_one(pipe->read.get(), POLLIN, Deadline::after(Millis(1000))), POLLIN);
}

TEST(RecvFds, ClosesEveryDescriptorOfAMessageThatHasTooMany)
{
    const auto pair = socket_pair(SocketType::stream);
    const auto file = open_file("/dev/null", O_RDONLY);
    const std::size_t before = open_count();
    for (const std::size_t count : {2U, 16U}) {
        const std::vector<int> many(count, file->get());
        ASSERT_TRUE(send_fds(pair->first.get(), "x", many).has_value());
        const auto received = recv_fds(pair->second.get(), 8, 1);
        ASSERT_FALSE(received.has_value());
        EXPECT_EQ(received.error().code(), Code::corrupt);
        EXPECT_EQ(open_count(), before);
    }
    const std::vector<int> beyond(17, file->get());
    EXPECT_FALSE(send_fds(pair->first.get(), "x", beyond).has_value());
}

TEST(RecvFds, RefusesAMessageThatWasCutAndSeesTheEnd)
{
    auto pair = socket_pair(SocketType::seqpacket);
    ASSERT_TRUE(send_fds(pair->first.get(), "123456789", {}).has_value());
    EXPECT_EQ(recv_fds(pair->second.get(), 8, 1).error().code(), Code::corrupt);
    pair->first.reset();
    const auto end = recv_fds(pair->second.get(), 8, 1);
    ASSERT_TRUE(end.has_value());
    EXPECT_TRUE(end->bytes.empty());
}

TEST(UnixSocket, WorksBelowAPathOfAnyLength)
{
    const TempDir dir;
    const std::string deep = dir / (std::string(120, 'd') + "/" + std::string(120, 'e'));
    ASSERT_TRUE(make_dirs(deep).has_value());
    const auto listener = unix_listen(deep + "/v.sock", SocketType::stream, 0660);
    ASSERT_TRUE(listener.has_value()) << listener.error().message();
    struct stat info{};
    ASSERT_EQ(::stat((deep + "/v.sock").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777U, 0660U);
    const auto client = unix_connect(deep + "/v.sock", SocketType::stream);
    ASSERT_TRUE(client.has_value());
    const auto server = accept_one(listener->get());
    ASSERT_TRUE(server.has_value());
    EXPECT_EQ(peer_credentials(server->get())->pid, ::getpid());
    EXPECT_FALSE(unix_listen(deep + "/v.sock", SocketType::stream, 0660).has_value());
    EXPECT_FALSE(unix_connect(deep + "/none.sock", SocketType::stream).has_value());
    // Nobody is taken in: once its queue is full, whoever comes waits, but not for ever.
    const auto stuck = unix_listen(deep + "/stuck.sock", SocketType::seqpacket, 0600, 0);
    ASSERT_TRUE(stuck.has_value());
    std::vector<UniqueFd> queued;
    for (int i = 0; i < 10; ++i) {
        auto one = unix_connect(deep + "/stuck.sock", SocketType::seqpacket, Millis{20});
        if (!one) {
            EXPECT_EQ(one.error().code(), Code::deadline_exceeded) << one.error().message();
            break;
        }
        queued.push_back(std::move(*one));
    }
    EXPECT_LT(queued.size(), 10U);
    timeval left{};
    socklen_t size = sizeof left;
    ASSERT_FALSE(queued.empty());
    EXPECT_EQ(getsockopt(queued[0].get(), SOL_SOCKET, SO_SNDTIMEO, &left, &size), 0);
    EXPECT_EQ(left.tv_sec * 1'000'000 + left.tv_usec, 0) << "what is sent later waits as ever";
}

TEST(UnixSocket, RefusesNamesThatAreNoNames)
{
    const TempDir dir;
    const auto root = open_dir(dir.path());
    for (const std::string& name : {std::string(), std::string("a/b"), std::string(65, 'n')})
        EXPECT_FALSE(unix_listen(root->get(), name, SocketType::stream, 0600).has_value()) << name;
}

TEST(SealedArtifact, HoldsTheBytesThatItsDigestNames)
{
    const TempDir dir;
    ASSERT_TRUE(write_file_at(AT_FDCWD, dir / "tool", "abc", 0755).has_value());
    const std::string digest =
        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";  // FIPS 180-4
    const auto sealed = seal_executable(dir / "tool", digest);
    ASSERT_TRUE(sealed.has_value()) << sealed.error().message();
    EXPECT_EQ(sealed->digest, digest);
    EXPECT_EQ(sealed->size, 3U);
    EXPECT_TRUE(*is_sealed(sealed->fd.get()));
    EXPECT_EQ(*digest_file(sealed->fd.get()), digest);
    EXPECT_EQ(sealed->source, *identity_of_fd(open_file(dir / "tool", O_PATH)->get()));
}

TEST(SealedArtifact, IsRefusedWhenTheBytesAreOthers)
{
    const TempDir dir;
    ASSERT_TRUE(write_file_at(AT_FDCWD, dir / "tool", "abd", 0755).has_value());
    const auto sealed = seal_executable(dir / "tool", "sha256:ba78");
    ASSERT_FALSE(sealed.has_value());
    EXPECT_EQ(sealed.error().code(), Code::conflict);
    EXPECT_NE(sealed.error().message().find("sha256:ba78"), std::string::npos);
}

TEST(SealedArtifact, IsRefusedWhenOthersCanWriteTheFile)
{
    const TempDir dir;
    ASSERT_TRUE(write_file_at(AT_FDCWD, dir / "open", "x", 0757).has_value());
    ASSERT_TRUE(write_file_at(AT_FDCWD, dir / "plain", "x", 0644).has_value());
    ASSERT_TRUE(write_file_at(AT_FDCWD, dir / "foreign", "x", 0755).has_value());
    EXPECT_FALSE(seal_executable(dir / "open").has_value());
    EXPECT_FALSE(seal_executable(dir / "plain").has_value());
    EXPECT_FALSE(seal_executable(dir.path()).has_value());
    if (!testing::is_root()) GTEST_SKIP() << "giving a file away needs root";
    ASSERT_EQ(::chown((dir / "foreign").c_str(), 4242, 4242), 0);
    EXPECT_FALSE(seal_executable(dir / "foreign").has_value());
}

TEST(SealedArtifact, CanBeExecuted)
{
    const auto sealed = seal_executable("/bin/true");
    ASSERT_TRUE(sealed.has_value()) << sealed.error().message();
    const auto status = testing::in_child([&] {
        char name[] = "true";
        char* argv[] = {name, nullptr};
        char* env[] = {nullptr};
        ::fexecve(sealed->fd.get(), argv, env);
        return 99;
    });
    EXPECT_EQ(status.code, 0);
}

}  // namespace sandbox::sys
