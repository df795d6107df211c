// SPDX-License-Identifier: Apache-2.0
#include "probe/cache.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include <sys/stat.h>
#include <unistd.h>

#include "census.hpp"
#include "sys/deadline.hpp"

namespace sandbox::probe {
namespace {

using facts::CapabilitySnapshot;
using facts::Fact;
using facts::FactStatus;
using test::Scratch;

class ProbeCache : public testing::Test {
protected:
    ProbeCache()
    {
        settings_.runtime.path = scratch_.write("crun", "bytes", 0755);
        settings_.init.path = scratch_.write("sandbox-init", "init", 0755);
        EXPECT_TRUE(store_cache(scratch_.path(), settings_, snapshot_));
    }

    std::string file() const { return scratch_.path() + "/probe.json"; }
    std::optional<CapabilitySnapshot> load() const
    {
        return load_cache(scratch_.path(), settings_);
    }
    std::string text() const
    {
        std::ifstream stream(file());
        return {std::istreambuf_iterator<char>(stream), {}};
    }

    Scratch scratch_;
    ProbeSettings settings_;
    CapabilitySnapshot snapshot_{{{"landlock.abi", Fact{FactStatus::ok, "7", "asked"}},
                                  {"kvm.guest", Fact{FactStatus::gap, "", "no device"}}}};
};

TEST_F(ProbeCache, GivesBackWhatWasStored)
{
    ASSERT_TRUE(load());
    EXPECT_EQ(*load(), snapshot_);
}

TEST_F(ProbeCache, IsPrivateAndLeavesNoTemporaryFile)
{
    struct stat status{};
    ASSERT_EQ(stat(file().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600U);
    std::size_t entries = 0;
    for (const auto& entry : std::filesystem::directory_iterator(scratch_.path())) {
        static_cast<void>(entry);
        ++entries;
    }
    EXPECT_EQ(entries, 3U);
}

TEST_F(ProbeCache, IsReplacedByANewerOne)
{
    const CapabilitySnapshot newer{{{"kvm.guest", Fact{FactStatus::ok, "yes", ""}}}};
    ASSERT_TRUE(store_cache(scratch_.path(), settings_, newer));
    EXPECT_EQ(*load(), newer);
}

TEST_F(ProbeCache, IsIgnoredWhenTooOld)
{
    EXPECT_FALSE(load_cache(scratch_.path(), settings_, std::chrono::seconds(-1)));
}

TEST_F(ProbeCache, IsIgnoredForOtherSettings)
{
    for (auto change : std::vector<void (*)(ProbeSettings&)>{
             [](ProbeSettings& s) { s.drivers = {"microvm"}; },
             [](ProbeSettings& s) { s.default_driver = "native"; },
             [](ProbeSettings& s) { s.cgroup_parent = "/x"; },
             [](ProbeSettings& s) { s.id_base += 65536; },
             [](ProbeSettings& s) { s.id_ranges += 1; },
             [](ProbeSettings& s) { s.accelerator = "tcg"; },
             [](ProbeSettings& s) { s.accept_emulated = true; },
             [](ProbeSettings& s) { s.guest_cpus = 2; },
             [](ProbeSettings& s) { s.guest_memory = 1; },
             [](ProbeSettings& s) { s.guest_stores = {"/store"}; },
             [](ProbeSettings& s) { s.guest_shares = {"/store"}; },
             [](ProbeSettings& s) { s.vmm.path = "/bin/true"; },
             [](ProbeSettings& s) { s.runtime.pin = Pin{"1", "sha256:x"}; }}) {
        ProbeSettings other = settings_;
        change(other);
        EXPECT_FALSE(load_cache(scratch_.path(), other));
    }
}

TEST_F(ProbeCache, IsIgnoredWhenABinaryWasReplacedEvenByEqualBytes)
{
    scratch_.write("new", "bytes", 0755);
    ASSERT_EQ(rename((scratch_.path() + "/new").c_str(), settings_.runtime.path.c_str()), 0);
    EXPECT_FALSE(load());
}

TEST_F(ProbeCache, IsIgnoredWhenABinaryWasWrittenInPlace)
{
    scratch_.write("sandbox-init", "tini", 0755);
    EXPECT_FALSE(load());
}

TEST_F(ProbeCache, IsIgnoredWhenABinaryIsGone)
{
    std::filesystem::remove(settings_.init.path);
    EXPECT_FALSE(load());
}

TEST_F(ProbeCache, IsIgnoredAtEveryTruncation)
{
    const std::string whole = text();
    for (std::size_t size = 0; size < whole.size(); ++size) {
        scratch_.write("probe.json", whole.substr(0, size), 0600);
        EXPECT_FALSE(load()) << size;
    }
}

TEST_F(ProbeCache, IsIgnoredOrUnchangedAfterAnyFlippedBit)
{
    const std::string whole = text();
    for (std::size_t at = 0; at < whole.size(); ++at) {
        std::string flipped = whole;
        flipped[at] = static_cast<char>(flipped[at] ^ 1);
        scratch_.write("probe.json", flipped, 0600);
        const auto loaded = load();  // values are not authenticated: no crash is the demand
        EXPECT_TRUE(!loaded || loaded->facts().size() == 2U);
    }
}

TEST_F(ProbeCache, IsIgnoredWhenOthersMayReadOrWriteIt)
{
    ASSERT_EQ(chmod(file().c_str(), 0620), 0);
    EXPECT_FALSE(load());
    ASSERT_EQ(chmod(file().c_str(), 0604), 0);
    EXPECT_FALSE(load());
}

TEST_F(ProbeCache, IsIgnoredWhenSomebodyElseOwnsIt)
{
    ASSERT_EQ(chown(file().c_str(), 65534, 65534), 0);
    EXPECT_FALSE(load());
}

TEST_F(ProbeCache, IsIgnoredWhenItIsALinkAFolderOrAPipe)
{
    const std::string kept = scratch_.path() + "/kept";
    ASSERT_EQ(rename(file().c_str(), kept.c_str()), 0);
    ASSERT_EQ(symlink("kept", file().c_str()), 0);
    EXPECT_FALSE(load());
    std::filesystem::remove(file());
    ASSERT_EQ(mkdir(file().c_str(), 0700), 0);
    EXPECT_FALSE(load());
    std::filesystem::remove(file());
    ASSERT_EQ(mkfifo(file().c_str(), 0600), 0);
    EXPECT_FALSE(load());
}

TEST_F(ProbeCache, IsIgnoredWhenItComesFromTheFuture)
{
    std::string later = text();
    const std::string field = "\"boottime\":";
    later.insert(later.find(field) + field.size(), "9");
    scratch_.write("probe.json", later, 0600);
    EXPECT_FALSE(load());
}

TEST_F(ProbeCache, StoringIntoAMissingFolderFails)
{
    EXPECT_FALSE(store_cache(scratch_.path() + "/absent", settings_, snapshot_));
}

TEST(ProbeCacheCost, LoadingAFullSnapshotIsCheap)
{
    const Scratch scratch;
    ProbeSettings settings;
    fill_standard_paths(settings, "/nonexistent");
    const CapabilitySnapshot fresh = cached_probe(scratch.path(), settings);
    std::int64_t best = INT64_MAX;
    for (int round = 0; round < 20; ++round) {
        const std::int64_t start = sys::boottime_ns();
        ASSERT_TRUE(load_cache(scratch.path(), settings));
        best = std::min(best, sys::boottime_ns() - start);
    }
    std::printf("cache load: %.3f ms\n", static_cast<double>(best) / 1'000'000);
#if !defined(__SANITIZE_ADDRESS__)
    EXPECT_LT(best, 1'000'000);  // 0.16 ms when quiet; the bound allows for a loaded machine
#endif
    EXPECT_EQ(cached_probe(scratch.path(), settings), fresh);
}

}  // namespace
}  // namespace sandbox::probe
