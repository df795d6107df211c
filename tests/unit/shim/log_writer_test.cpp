// SPDX-License-Identifier: Apache-2.0
#include "shim/log_writer.hpp"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <set>

#include "support.hpp"

namespace sandbox::shim {
namespace {

namespace fs = std::filesystem;
using test::in_child;
using test::records_of;
using test::TempDir;

LogRecord numbered(std::uint64_t number, std::size_t length = 40)
{
    std::string log = std::to_string(number);
    log.resize(length, '.');
    return {.time = "2026-01-02T03:04:05.000000006Z",
            .stream = Stream::out,
            .offset = number,
            .log = std::move(log)};
}

std::set<std::string> names_in(const std::string& dir)
{
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir)) names.insert(entry.path().filename());
    return names;
}

std::uint64_t bytes_in(const std::string& dir)
{
    std::uint64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(dir)) bytes += entry.file_size();
    return bytes;
}

// Oldest first.
std::vector<LogRecord> all_records(const std::string& dir, std::uint32_t files)
{
    std::vector<LogRecord> all;
    for (std::uint32_t n = files; n-- > 0;) {
        const std::string name = dir + "/" + kLogName + (n == 0 ? "" : "." + std::to_string(n));
        if (!fs::exists(name)) continue;
        const auto records = records_of(name);
        all.insert(all.end(), records.begin(), records.end());
    }
    return all;
}

TEST(LogWriter, MakesItsFolderAndAppendsToWhatIsThere)
{
    const TempDir dir;
    const std::string logs = dir.file("a/logs");
    for (std::uint64_t n = 0; n < 3; ++n) {
        auto writer = VALUE(LogWriter::open(logs, {}));
        EXPECT_OK(writer.append(numbered(n)));
    }
    const auto records = records_of(logs + "/" + kLogName);
    ASSERT_EQ(records.size(), 3U);
    for (std::uint64_t n = 0; n < 3; ++n) EXPECT_EQ(records[n], numbered(n));
    struct stat status{};
    ASSERT_EQ(stat((logs + "/" + kLogName).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST(LogWriter, RotatesWithoutLosingARecordUntilTheLastFileIsFull)
{
    const TempDir dir;
    const LogLimits limits{.bytes = 4000, .files = 4};
    auto writer = VALUE(LogWriter::open(dir.path(), limits));
    const std::size_t line = encode(numbered(10)).size();
    const std::uint64_t fit = 4 * (1000 / line);
    for (std::uint64_t n = 10; n < 10 + fit; ++n) ASSERT_TRUE(writer.append(numbered(n)));
    EXPECT_EQ(names_in(dir.path()),
              (std::set<std::string>{"log.jsonl", "log.jsonl.1", "log.jsonl.2", "log.jsonl.3"}));
    const auto records = all_records(dir.path(), limits.files);
    ASSERT_EQ(records.size(), fit);
    for (std::uint64_t n = 0; n < fit; ++n) EXPECT_EQ(records[n], numbered(10 + n));
}

TEST(LogWriter, HoldsItsCapAndMarksWhatItDropped)
{
    for (const std::uint32_t files : {1U, 2U, 4U}) {
        const TempDir dir;
        const LogLimits limits{.bytes = 8000, .files = files};
        auto writer = VALUE(LogWriter::open(dir.path(), limits));
        std::uint64_t most = 0;
        for (std::uint64_t n = 0; n < 1000; ++n) {
            ASSERT_TRUE(writer.append(numbered(n)));
            most = std::max(most, bytes_in(dir.path()));
        }
        EXPECT_LE(most, limits.bytes + 300) << files << " files";  // one marker more
        EXPECT_LE(names_in(dir.path()).size(), files);
        const auto records = all_records(dir.path(), files);
        EXPECT_EQ(records.back(), numbered(999));
        const auto newest = records_of(dir.file(kLogName));
        ASSERT_FALSE(newest.empty());
        EXPECT_EQ(newest.front().stream, Stream::supervisor) << files << " files";
        EXPECT_GT(newest.front().dropped, 0U);
        // Between two markers no number is missing.
        std::uint64_t next = 0;
        for (const LogRecord& r : records) {
            if (r.stream == Stream::supervisor) continue;
            EXPECT_TRUE(next == 0 || r.offset == next) << r.offset;
            next = r.offset + 1;
        }
    }
}

TEST(LogWriter, KeepsARecordLargerThanAFilesShare)
{
    const TempDir dir;
    auto writer = VALUE(LogWriter::open(dir.path(), {.bytes = 100, .files = 4}));
    EXPECT_OK(writer.append(numbered(1, kLongestRecord)));
    EXPECT_OK(writer.append(numbered(2, kLongestRecord)));
    EXPECT_EQ(records_of(dir.file("log.jsonl")).back(), numbered(2, kLongestRecord));
    EXPECT_EQ(records_of(dir.file("log.jsonl.1")).back(), numbered(1, kLongestRecord));
}

TEST(LogWriter, EndsALineThatACrashLeftOpen)
{
    const TempDir dir;
    test::write_bytes(dir.file(kLogName), encode(numbered(1)) + "{\"time\":\"20");
    auto writer = VALUE(LogWriter::open(dir.path(), {}));
    EXPECT_OK(writer.append(numbered(2)));
    EXPECT_EQ(test::read_bytes(dir.file(kLogName)),
              encode(numbered(1)) + "{\"time\":\"20\n" + encode(numbered(2)));
}

TEST(LogWriter, NeverFollowsALinkInPlaceOfTheLog)
{
    const TempDir dir;
    test::write_bytes(dir.file("victim"), "precious");
    fs::create_directory(dir.file("logs"));
    fs::create_symlink(dir.file("victim"), dir.file("logs/log.jsonl"));
    EXPECT_FALSE(LogWriter::open(dir.file("logs"), {}));
    EXPECT_EQ(test::read_bytes(dir.file("victim")), "precious");
}

// Fills a file system of 256 KiB, makes room again, and looks at what the log says then.
std::string fill_a_small_disk(const std::string& where, LogLimits limits)
{
    if (mount("none", where.c_str(), "tmpfs", 0, "size=256k") != 0) {
        return std::string("mount tmpfs: ") + std::strerror(errno);
    }
    // Ballast is what is taken away later.
    test::write_bytes(where + "/ballast", std::string(64U << 10, 'b'));
    auto writer = LogWriter::open(where + "/logs", limits);
    if (!writer) return writer.error().message();
    std::uint64_t n = 0;
    Status status;
    while ((status = writer->append(numbered(n, 1000)))) {
        if (++n > 10'000) return "the disk never got full";
    }
    if (status.error().code() != Code::resource_exhausted) return status.error().message();
    const std::uint64_t lost = encode(numbered(n, 1000)).size() +
                               encode(numbered(n + 1, 1000)).size();
    if (writer->append(numbered(n + 1, 1000))) return "a full disk took a record";
    fs::remove(where + "/ballast");
    if (auto again = writer->append(numbered(n + 2, 1000)); !again) return again.error().message();
    const auto records = all_records(where + "/logs", limits.files);
    if (records.back() != numbered(n + 2, 1000)) return "the last record is not the last";
    // A marker is short: one may have fitted while the records beside it did not.
    std::uint64_t marked = 0;
    for (const LogRecord& r : records) marked += r.dropped;
    if (marked != lost) return "dropped: " + std::to_string(marked);
    if (records[records.size() - 2].stream != Stream::supervisor)
        return "no marker before what fits";
    for (std::uint64_t i = 0; i < n; ++i) {
        if (records[i] != numbered(i, 1000)) return "record " + std::to_string(i) + " is damaged";
    }
    return "";
}

TEST(LogWriter, CountsWhatAFullDiskLosesAndSaysSoInTheFirstRecordThatFits)
{
    const TempDir dir;
    EXPECT_EQ(
        in_child([&] { return fill_a_small_disk(dir.path(), {.bytes = 1U << 20, .files = 4}); }),
        "");
}

}  // namespace
}  // namespace sandbox::shim
