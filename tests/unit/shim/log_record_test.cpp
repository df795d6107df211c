// SPDX-License-Identifier: Apache-2.0
#include "shim/log_record.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "base/utf8.hpp"

namespace sandbox::shim {
namespace {

constexpr const char* kTime = "2026-01-02T03:04:05.000000006Z";

LogRecord record(std::string log)
{
    return {.time = kTime, .stream = Stream::out, .offset = 0, .log = std::move(log)};
}

std::vector<LogRecord> split(const std::vector<std::string_view>& chunks)
{
    LineSplitter splitter(Stream::out);
    std::vector<LogRecord> records;
    for (const auto chunk : chunks) {
        splitter.feed(chunk, kTime, [&](LogRecord&& r) { records.push_back(std::move(r)); });
    }
    if (auto last = splitter.finish(kTime)) records.push_back(std::move(*last));
    return records;
}

// What the workload wrote, from the records alone; offsets must follow each other.
std::string joined(const std::vector<LogRecord>& records)
{
    std::string text;
    for (const LogRecord& r : records) {
        EXPECT_EQ(r.offset, text.size());
        EXPECT_LE(r.log.size(), kLongestRecord);
        EXPECT_EQ(r.log.find('\n'), std::string::npos);
        text += r.log;
        if (!r.partial) text += '\n';
    }
    return text;
}

TEST(LogRecord, IsOneLineOfPlainJson)
{
    EXPECT_EQ(encode(record("hello")),
              std::string("{\"time\":\"") + kTime +
                  "\",\"stream\":\"stdout\",\"offset\":0,\"log\":\"hello\",\"partial\":false}\n");
}

TEST(LogRecord, SurvivesEncodingWithEveryByteThereIs)
{
    std::string all;
    for (int byte = 0; byte < 256; ++byte) {
        const std::string one(1, static_cast<char>(byte));
        all += one;
        for (const std::string& log : {one, "before " + one + " after", all}) {
            const std::string line = encode(record(log));
            EXPECT_EQ(line.find('\n'), line.size() - 1) << byte;
            EXPECT_TRUE(is_valid_utf8(line)) << byte;
            for (const char c : line.substr(0, line.size() - 1)) {
                EXPECT_GE(static_cast<unsigned char>(c), 0x20) << "raw control byte of " << byte;
            }
            const auto back = decode(line);
            ASSERT_TRUE(back) << byte << ": " << back.error().message();
            EXPECT_EQ(*back, record(log)) << byte;
        }
    }
}

TEST(LogRecord, KeepsTextAsTextAndOnlyOtherBytesAsBase64)
{
    EXPECT_NE(encode(record("gr\xc3\xbc\xc3\x9f")).find("\"log\":\"gr\xc3\xbc\xc3\x9f\""),
              std::string::npos);
    EXPECT_NE(encode(record("\xff")).find("\"log_b64\":\"/w==\""), std::string::npos);
    EXPECT_NE(encode(record("\xff\xfe")).find("\"log_b64\":\"//4=\""), std::string::npos);
    EXPECT_NE(encode(record("\xff\xfe\xfd")).find("\"log_b64\":\"//79\""), std::string::npos);
}

TEST(LogRecord, SurvivesEncodingWithEveryFieldSet)
{
    const LogRecord full{.time = kTime,
                         .stream = Stream::supervisor,
                         .offset = 1ULL << 40,
                         .log = "output dropped",
                         .partial = true,
                         .dropped = 123456789};
    EXPECT_EQ(decode(encode(full)).value(), full);
    LogRecord longest = record(std::string(kLongestRecord, '\x01'));
    longest.stream = Stream::err;
    EXPECT_EQ(decode(encode(longest)).value(), longest);
    longest.log.assign(kLongestRecord, '\xff');
    EXPECT_EQ(decode(encode(longest)).value(), longest);
}

TEST(LogRecord, RefusesLinesThatAreNoRecord)
{
    const std::string good = encode(record("hello"));
    for (std::size_t cut = 0; cut + 2 < good.size(); ++cut) {
        EXPECT_FALSE(decode(good.substr(0, cut))) << cut;
    }
    for (const std::string_view bad :
         {"", "[]", "1", "{}",
          R"({"time":"t","stream":"stdin","offset":0,"log":"x","partial":false})",
          R"({"time":"t","stream":"stdout","offset":-1,"log":"x","partial":false})",
          R"({"time":"t","stream":"stdout","offset":0,"log":7,"partial":false})",
          R"({"time":"t","stream":"stdout","offset":0,"partial":false})",
          R"({"time":"t","stream":"stdout","offset":0,"log":"x","partial":0})",
          R"({"time":1,"stream":"stdout","offset":0,"log":"x","partial":false})",
          R"({"time":"t","stream":"stdout","offset":0,"log_b64":"abc","partial":false})",
          R"({"time":"t","stream":"stdout","offset":0,"log_b64":"ab=c","partial":false})",
          R"({"time":"t","stream":"stdout","offset":0,"log_b64":"====","partial":false})",
          R"({"time":"t","stream":"stdout","offset":0,"log_b64":"a*==","partial":false})"}) {
        EXPECT_FALSE(decode(bad)) << bad;
    }
}

TEST(LineSplitter, GivesTheSameRecordsWhereverTheTextIsCut)
{
    const std::string text = "one\n\ntwo words\n\xff\xfe\r\nlast without end";
    const auto whole = split({text});
    ASSERT_EQ(whole.size(), 5U);
    EXPECT_EQ(whole[1].log, "");
    EXPECT_TRUE(whole[4].partial);
    EXPECT_EQ(joined(whole), text);
    const std::string_view view = text;
    for (std::size_t a = 0; a <= text.size(); ++a) {
        for (std::size_t b = a; b <= text.size(); ++b) {
            EXPECT_EQ(split({view.substr(0, a), view.substr(a, b - a), view.substr(b)}), whole)
                << a << ", " << b;
        }
    }
}

TEST(LineSplitter, CutsALongLineIntoPartialRecordsWhereverChunksEnd)
{
    for (const std::size_t length : {kLongestRecord - 1, kLongestRecord, kLongestRecord + 1,
                                     2 * kLongestRecord, 2 * kLongestRecord + 5}) {
        for (const std::string& end : {std::string("\n"), std::string(), std::string("\nnext\n")}) {
            const std::string text = std::string(length, 'x') + end;
            const auto whole = split({text});
            EXPECT_EQ(joined(whole), text);
            const std::string_view view = text;
            for (std::size_t cut = kLongestRecord - 2; cut < text.size(); cut += 1) {
                if (cut > kLongestRecord + 2 && cut + 8 < text.size()) continue;
                EXPECT_EQ(split({view.substr(0, cut), view.substr(cut)}), whole)
                    << length << " " << cut;
            }
        }
    }
}

TEST(LineSplitter, EndsALineOfExactlyTheLongestLengthWithItsOwnNewline)
{
    const auto records = split({std::string(kLongestRecord, 'x') + "\n"});
    ASSERT_EQ(records.size(), 1U);
    EXPECT_FALSE(records[0].partial);
}

TEST(LineSplitter, HasNothingLeftAfterAWholeLine)
{
    LineSplitter splitter(Stream::err);
    EXPECT_FALSE(splitter.finish(kTime));
    std::vector<LogRecord> records;
    splitter.feed("a\n", kTime, [&](LogRecord&& r) { records.push_back(std::move(r)); });
    ASSERT_EQ(records.size(), 1U);
    EXPECT_EQ(records[0].stream, Stream::err);
    EXPECT_FALSE(splitter.finish(kTime));
}

}  // namespace
}  // namespace sandbox::shim
