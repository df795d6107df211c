// SPDX-License-Identifier: Apache-2.0
#include "sys/archive.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <thread>

#include "sys/file.hpp"

namespace sandbox::sys {
namespace {

// A folder of its own for one test: tree/ is copied, out/ is copied into, canary is outside both.
class ArchiveTest : public testing::Test {
protected:
    void SetUp() override
    {
        char pattern[] = "/tmp/sandbox-archive-XXXXXX";
        ASSERT_NE(::mkdtemp(pattern), nullptr);
        base_ = pattern;
        ::umask(022);
        for (const char* name : {"/tree", "/out"}) ASSERT_TRUE(make_dirs(base_ + name, 0755));
        write("canary", "untouched");
    }
    void TearDown() override
    {
        EXPECT_EQ(read("canary"), "untouched");
        EXPECT_TRUE(remove_tree_at(AT_FDCWD, base_));
    }

    std::string at(const std::string& name) const { return base_ + "/" + name; }
    void write(const std::string& name, const std::string& bytes, mode_t mode = 0644)
    {
        const auto fd = open_file(at(name), O_WRONLY | O_CREAT | O_TRUNC, mode);
        ASSERT_TRUE(fd) << fd.error().message();
        ASSERT_TRUE(write_all(fd->get(), bytes));
    }
    std::string read(const std::string& name) const
    {
        return read_file(at(name), 1U << 20).value_or("(missing)");
    }

    Result<tar::Tally> copy(const std::string& from, const std::string& to,
                            Landing landing = Landing::named, const tar::Limits& limits = {})
    {
        return copy_bytes(TRY(pack(from, limits)), to, landing, limits);
    }
    Result<std::string> pack(const std::string& from, const tar::Limits& limits = {})
    {
        const auto source = TRY(open_archive_source({AT_FDCWD, 0}, at(from)));
        const auto file = TRY(make_memfd("archive"));
        packed_ = TRY(pack_archive(source, file.get(), limits));
        return read_file(fd_path(file.get()), 64U << 20);
    }
    Result<tar::Tally> copy_bytes(const std::string& archive, const std::string& to,
                                  Landing landing = Landing::named, const tar::Limits& limits = {})
    {
        const auto file = TRY(sealed_memfd("archive", archive));
        const auto readable = TRY(open_file(fd_path(file.get()), O_RDONLY));
        return unpack_archive(TRY(open_archive_target({AT_FDCWD, 0}, at(to), landing)),
                              readable.get(), limits);
    }
    static std::string member(tar::Kind kind, const std::string& name, const std::string& content)
    {
        const bool link = kind == tar::Kind::symlink || kind == tar::Kind::hardlink;
        const tar::Entry entry{kind, name, link ? content : "",      0644, 0,
                               0,    1,    link ? 0 : content.size()};
        return tar::header_of(entry) +
               (link ? "" : content + std::string(tar::padding_of(content.size()), '\0'));
    }

    std::string base_;
    Packed packed_;
};

TEST_F(ArchiveTest, KeepsModesTimesLinksAndEmptyFolders)
{
    ASSERT_TRUE(make_dirs(at("tree/empty"), 0755));
    ASSERT_TRUE(make_dirs(at("tree/closed"), 0755));
    write("tree/closed/f", std::string(70'000, 'x'), 0400);
    write("tree/run", "#!", 0755);
    ASSERT_EQ(::symlink("../../nowhere", at("tree/link").c_str()), 0);
    ASSERT_EQ(::mkfifo(at("tree/fifo").c_str(), 0600), 0);
    ASSERT_EQ(::chmod(at("tree/run").c_str(), 06755), 0);
    ASSERT_EQ(::chmod(at("tree/closed").c_str(), 0555), 0);
    const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'001, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, at("tree/closed").c_str(), times, 0), 0);

    const auto tally = copy("tree", "out");
    ASSERT_TRUE(tally) << tally.error().message();
    EXPECT_EQ(tally->files, 3U);
    EXPECT_EQ(tally->bytes, 70'002U);
    struct stat info{};
    ASSERT_EQ(::stat(at("out/tree/closed").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0555U);
    EXPECT_EQ(info.st_mtim.tv_sec, 1'000'000'001);
    ASSERT_EQ(::stat(at("out/tree/run").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0755U);
    EXPECT_EQ(read("out/tree/closed/f"), std::string(70'000, 'x'));
    EXPECT_EQ(readlink_at(AT_FDCWD, at("out/tree/link")).value(), "../../nowhere");
    EXPECT_EQ(::access(at("out/tree/empty").c_str(), F_OK), 0);
    EXPECT_NE(::access(at("out/tree/fifo").c_str(), F_OK), 0);
    EXPECT_EQ(packed_.skipped, std::vector<std::string>{"tree/fifo"});
}

TEST_F(ArchiveTest, LandsWherePeopleExpect)
{
    write("tree/f", "new");
    ASSERT_TRUE(copy("tree/f", "out"));
    EXPECT_EQ(read("out/f"), "new");
    ASSERT_TRUE(copy("tree/f", "out/g"));
    EXPECT_EQ(read("out/g"), "new");
    write("out/f", "old");
    ASSERT_TRUE(copy("tree/f", "out/f"));
    EXPECT_EQ(read("out/f"), "new");
    ASSERT_TRUE(copy("tree", "out/fresh"));
    EXPECT_EQ(read("out/fresh/f"), "new");
    ASSERT_TRUE(copy("tree", "out/fresh"));
    EXPECT_EQ(read("out/fresh/tree/f"), "new");
    ASSERT_TRUE(copy("tree", "out/slash/"));
    EXPECT_EQ(read("out/slash/f"), "new");
    ASSERT_TRUE(copy("tree/.", "out/inside", Landing::content));
    ASSERT_TRUE(copy("tree/.", "out/inside", Landing::content));
    EXPECT_EQ(read("out/inside/f"), "new");

    EXPECT_FALSE(copy("tree/f", "out/missing/"));
    EXPECT_FALSE(copy("tree/f", "out/missing/f"));
    EXPECT_FALSE(copy("tree", "out/f"));
    EXPECT_FALSE(copy("tree/f", "out/f/"));
    EXPECT_FALSE(copy("nothing", "out"));
    EXPECT_FALSE(copy_bytes(member(tar::Kind::file, "f", "x") + tar::end_of_archive(),
                            "out/missing", Landing::content));
}

TEST_F(ArchiveTest, ALinkInTheTargetIsNotWrittenThrough)
{
    ASSERT_EQ(::symlink("../canary", at("out/f").c_str()), 0);
    ASSERT_EQ(::symlink("..", at("out/d").c_str()), 0);
    ASSERT_TRUE(copy_bytes(member(tar::Kind::file, "f", "evil") + tar::end_of_archive(), "out",
                           Landing::content));
    EXPECT_EQ(read("out/f"), "evil");
    const auto through = copy_bytes(member(tar::Kind::file, "d/canary", "evil") +
                                        tar::end_of_archive(),
                                    "out", Landing::content);
    ASSERT_FALSE(through);
    EXPECT_EQ(through.error().code(), Code::already_exists);
}

TEST_F(ArchiveTest, ALinkOfTheArchiveIsNotFollowed)
{
    const std::string planted = member(tar::Kind::symlink, "d", base_) +
                                member(tar::Kind::file, "d/canary", "evil");
    EXPECT_FALSE(copy_bytes(planted + tar::end_of_archive(), "out", Landing::content));
    const std::string linked = member(tar::Kind::symlink, "l", at("canary")) +
                               member(tar::Kind::hardlink, "h", "l");
    EXPECT_FALSE(copy_bytes(linked + tar::end_of_archive(), "out", Landing::content));
    const std::string over = member(tar::Kind::symlink, "l", at("canary")) +
                             member(tar::Kind::file, "l", "evil");
    EXPECT_TRUE(copy_bytes(over + tar::end_of_archive(), "out", Landing::content));
    EXPECT_EQ(read("out/l"), "evil");
}

TEST_F(ArchiveTest, AHardLinkBecomesAFileOfItsOwnAndCounts)
{
    const std::string archive = member(tar::Kind::file, "t/a", "12345678") +
                                member(tar::Kind::hardlink, "t/b", "t/a") +
                                member(tar::Kind::hardlink, "t/c", "t/a") + tar::end_of_archive();
    ASSERT_TRUE(copy_bytes(archive, "out/renamed"));
    EXPECT_EQ(read("out/renamed/c"), "12345678");
    struct stat info{};
    ASSERT_EQ(::stat(at("out/renamed/b").c_str(), &info), 0);
    EXPECT_EQ(info.st_nlink, 1U);
    const auto bomb = copy_bytes(archive, "out/again", Landing::named, {.bytes = 10});
    ASSERT_FALSE(bomb);
    EXPECT_EQ(bomb.error().code(), Code::resource_exhausted);
}

TEST_F(ArchiveTest, LimitsHoldWhilePacking)
{
    write("tree/a", "12345");
    write("tree/b", "12345");
    ASSERT_TRUE(copy("tree", "out", Landing::named, {.bytes = 10, .entries = 3, .depth = 2}));
    for (const tar::Limits& limits :
         {tar::Limits{.bytes = 9}, tar::Limits{.entries = 2}, tar::Limits{.depth = 1}}) {
        const auto packed = pack("tree", limits);
        ASSERT_FALSE(packed);
        EXPECT_EQ(packed.error().code(), Code::resource_exhausted);
    }
    // A hole of a tebibyte is refused by its size, not read.
    ASSERT_EQ(::truncate(at("tree/a").c_str(), 1LL << 40), 0);
    EXPECT_FALSE(pack("tree"));
}

TEST_F(ArchiveTest, ARootHoldsLinksInside)
{
    const auto root = open_dir(at("tree"));
    ASSERT_TRUE(root);
    ASSERT_EQ(::symlink("../canary", at("tree/up").c_str()), 0);
    ASSERT_EQ(::symlink(at("canary").c_str(), at("tree/absolute").c_str()), 0);
    ASSERT_EQ(::symlink("/proc/self/root", at("tree/magic").c_str()), 0);
    const ArchiveRoot within{root->get(), kInRoot};
    for (const char* path : {"/up", "/absolute", "/../canary", "/magic/etc/passwd", "/../../.."}) {
        const auto source = open_archive_source(within, path);
        EXPECT_TRUE(!source || source->folder) << path;  // "/" itself
    }
    EXPECT_FALSE(open_archive_source(within, "/up"));
    const auto target = open_archive_target(within, "/up", Landing::named);
    ASSERT_TRUE(target);
    EXPECT_EQ(target->rename, "up");
    EXPECT_EQ(identity_of_fd(target->folder.get()).value(), identity_of_fd(root->get()).value());
}

// Somebody inside swaps a folder for a link to outside, all the time.
TEST_F(ArchiveTest, ASwapRaceLeadsNowhere)
{
    ASSERT_TRUE(make_dirs(at("secret"), 0755));
    write("secret/canary", "SECRET");
    ASSERT_TRUE(make_dirs(at("tree/d"), 0755));
    write("tree/d/canary", "harmless");
    ASSERT_EQ(::symlink("../secret", at("tree/l").c_str()), 0);
    std::atomic<bool> stop = false;
    std::thread swapper([&] {
        while (!stop) {
            ::renameat2(AT_FDCWD, at("tree/d").c_str(), AT_FDCWD, at("tree/l").c_str(),
                        RENAME_EXCHANGE);
        }
    });
    const std::string overwrite = member(tar::Kind::file, "d/canary", "evil") +
                                  tar::end_of_archive();
    int wrote = 0;
    for (int round = 0; round < 2000; ++round) {
        const auto packed = pack("tree");
        ASSERT_TRUE(packed) << packed.error().message();
        ASSERT_EQ(packed->find("SECRET"), std::string::npos);
        wrote += copy_bytes(overwrite, "tree", Landing::content) ? 1 : 0;
    }
    stop = true;
    swapper.join();
    EXPECT_GT(wrote, 0);
    EXPECT_EQ(read("secret/canary"), "SECRET");
}

}  // namespace
}  // namespace sandbox::sys
