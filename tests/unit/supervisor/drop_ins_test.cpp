// SPDX-License-Identifier: Apache-2.0
#include "supervisor/drop_ins.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "../ledger/support.hpp"
#include "supervisor/converge.hpp"

namespace sandbox::supervisor {
namespace {

using ledger::test::TempDir;
using ledger::test::write_bytes;

class TwoFolders {
public:
    TwoFolders()
    {
        std::filesystem::create_directory(own());
        std::filesystem::create_directory(vendors());
    }
    std::string own() const { return dir_.file("own"); }
    std::string vendors() const { return dir_.file("vendors"); }
    // "name=text", and "name!" for one that is not to be read.
    std::vector<std::string> read(Trust trust = Trust::owner_only) const
    {
        const auto files = read_drop_ins({own(), vendors()}, trust);
        if (!files) return {"error: " + files.error().message()};
        std::vector<std::string> out;
        for (const DropIn& file : *files) {
            const std::string place = file.file.substr(own().rfind('/') + 1);
            EXPECT_EQ(file.text.has_value(), file.problem.empty()) << place;
            out.push_back(file.text ? place + "=" + *file.text : place + "!");
        }
        return out;
    }

private:
    TempDir dir_;
};

using Names = std::vector<std::string>;

TEST(DropIns, ComeInTheOrderOfTheirNamesWhateverTheFolder)
{
    const TwoFolders folders;
    write_bytes(folders.own() + "/20-b.toml", "b");
    write_bytes(folders.vendors() + "/10-a.toml", "a");
    write_bytes(folders.vendors() + "/30-c.toml", "c");
    EXPECT_EQ(folders.read(),
              (Names{"vendors/10-a.toml=a", "own/20-b.toml=b", "vendors/30-c.toml=c"}));
}

TEST(DropIns, OfTheFirstFolderStandForTheSameNameInTheNext)
{
    const TwoFolders folders;
    write_bytes(folders.own() + "/web.toml", "mine");
    write_bytes(folders.vendors() + "/web.toml", "theirs");
    EXPECT_EQ(folders.read(), Names{"own/web.toml=mine"});
}

TEST(DropIns, AreMaskedByAnEmptyFileAndByALinkToNull)
{
    const TwoFolders folders;
    for (const char* name : {"/a.toml", "/b.toml", "/c.toml"}) {
        write_bytes(folders.vendors() + name, "x");
    }
    write_bytes(folders.own() + "/a.toml", "");
    ASSERT_EQ(symlink("/dev/null", (folders.own() + "/b.toml").c_str()), 0);
    EXPECT_EQ(folders.read(), Names{"vendors/c.toml=x"});
}

TEST(DropIns, AreNotWhatEditorsAndPackagersLeaveBehind)
{
    const TwoFolders folders;
    for (const char* name : {".a.toml", ".a.toml.swp", "a.toml~", "#a.toml#", ".#a.toml",
                             "a.toml.dpkg-new", "4913", "README", ".toml", "a.TOML"}) {
        write_bytes(folders.own() + "/" + name, "x");
        EXPECT_FALSE(is_drop_in_name(name)) << name;
    }
    EXPECT_TRUE(folders.read().empty());
    EXPECT_TRUE(is_drop_in_name("a.toml"));
}

TEST(DropIns, ThatOthersMayWriteAreNotTrustedToStartByThemselves)
{
    const TwoFolders folders;
    write_bytes(folders.own() + "/a.toml", "x");
    ASSERT_EQ(chmod((folders.own() + "/a.toml").c_str(), 0666), 0);
    EXPECT_EQ(folders.read(), Names{"own/a.toml!"});
    EXPECT_EQ(folders.read(Trust::anyone), Names{"own/a.toml=x"});
    ASSERT_EQ(chmod(folders.own().c_str(), 0777), 0);
    ASSERT_EQ(folders.read().size(), 1U);
    EXPECT_NE(folders.read()[0].find("error: "), std::string::npos);
}

TEST(DropIns, ThatCannotBeReadStandThereAndSaySo)
{
    const TwoFolders folders;
    std::filesystem::create_directory(folders.own() + "/dir.toml");
    ASSERT_EQ(mkfifo((folders.own() + "/fifo.toml").c_str(), 0600), 0);
    ASSERT_EQ(symlink("/no/such", (folders.own() + "/link.toml").c_str()), 0);
    write_bytes(folders.own() + "/long.toml", std::string(300U << 10, '#'));
    EXPECT_EQ(folders.read(),
              (Names{"own/dir.toml!", "own/fifo.toml!", "own/link.toml!", "own/long.toml!"}));
}

TEST(DropIns, OfAFolderThatIsNotThereAreNone)
{
    EXPECT_TRUE(read_drop_ins({"/no/such", "/no/such/either"}, Trust::owner_only).value().empty());
}

class Watched {
public:
    Watched() : paths_(find_paths(dir_.path())), converger_(Converger::watch(paths_).value()) {}
    const Paths& paths() const { return paths_; }

    // False: nothing became due within `patience`.
    bool is_due(Millis patience)
    {
        const auto deadline = sys::Deadline::after(patience);
        while (!deadline.passed()) {
            std::vector<pollfd> list;
            for (const int fd : converger_.watch_fds()) list.push_back({fd, POLLIN, 0});
            if (poll(list.data(), list.size(), deadline.poll_timeout()) <= 0) continue;
            if (converger_.on_event()) return true;
        }
        return false;
    }

private:
    TempDir dir_;
    Paths paths_;
    Converger converger_;
};

constexpr Millis kSoon{10'000};      // of a machine with much to do
constexpr Millis kNothing{600};      // more than twice the debounce

TEST(ConvergerWatch, NoticesAFolderThatAppearsAndWhatHappensInIt)
{
    Watched watched;
    EXPECT_FALSE(watched.is_due(kNothing));
    std::filesystem::create_directories(watched.paths().profiles);
    EXPECT_TRUE(watched.is_due(kSoon));
    const std::string file = watched.paths().profiles + "/web.toml";
    write_bytes(file, "x");
    EXPECT_TRUE(watched.is_due(kSoon));
    std::filesystem::rename(file, watched.paths().profiles + "/shop.toml");
    EXPECT_TRUE(watched.is_due(kSoon));
    std::filesystem::remove(watched.paths().profiles + "/shop.toml");
    EXPECT_TRUE(watched.is_due(kSoon));
    EXPECT_FALSE(watched.is_due(kNothing));
}

TEST(ConvergerWatch, NoticesAFolderThatWasMadeAnew)
{
    Watched watched;
    std::filesystem::create_directories(watched.paths().vendor_profiles);
    EXPECT_TRUE(watched.is_due(kSoon));
    std::filesystem::remove_all(watched.paths().vendor_profiles);
    EXPECT_TRUE(watched.is_due(kSoon));
    std::filesystem::create_directories(watched.paths().vendor_profiles);
    EXPECT_TRUE(watched.is_due(kSoon));
    write_bytes(watched.paths().vendor_profiles + "/web.toml", "x");
    EXPECT_TRUE(watched.is_due(kSoon));
}

TEST(ConvergerWatch, TakesAFlurryForOneChange)
{
    Watched watched;
    std::filesystem::create_directories(watched.paths().profiles);
    EXPECT_TRUE(watched.is_due(kSoon));
    for (int i = 0; i < 100; ++i) {
        write_bytes(watched.paths().profiles + "/" + std::to_string(i) + ".toml", "x");
    }
    EXPECT_TRUE(watched.is_due(kSoon));
    EXPECT_FALSE(watched.is_due(kNothing));
}

}  // namespace
}  // namespace sandbox::supervisor
