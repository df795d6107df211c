// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "negative_cases.hpp"
#include "samples.hpp"

namespace sandbox::wire::test {

namespace {

namespace fs = std::filesystem;

fs::path corpus() { return SANDBOX_WIRE_GOLDEN; }

bool accepting()
{
    const char* value = std::getenv("SANDBOX_ACCEPT");
    return value != nullptr && std::string_view(value) == "1";
}

std::string read(const fs::path& path)
{
    std::ifstream file(path);
    EXPECT_TRUE(file) << path << " is missing: run with SANDBOX_ACCEPT=1 and review the diff";
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write(const fs::path& path, const std::string& text)
{
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
}

fs::path path_of(const Sample& sample)
{
    return corpus() / folder_of(sample.port) / (sample.name + ".hex");
}

fs::path path_of(const NegativeCase& negative)
{
    return corpus() / folder_of(negative.port) / (negative.name + ".hex");
}

// "# error: bad_payload" -> "bad_payload"
std::string comment(const std::string& text, const std::string& key)
{
    const std::string mark = "# " + key + ": ";
    const std::size_t at = text.find(mark);
    if (at == std::string::npos) return {};
    const std::size_t start = at + mark.size();
    return text.substr(start, text.find('\n', start) - start);
}

}  // namespace

TEST(WireGolden, EveryMessageEncodesToItsFile)
{
    for (const Sample& sample : samples()) {
        const ByteVector bytes = encode_any(sample.message);
        if (accepting()) {
            write(path_of(sample),
                  "# " + folder_of(sample.port) + " " + sample.name + "\n" + to_hex(bytes));
            continue;
        }
        EXPECT_EQ(to_hex(from_hex(read(path_of(sample)))), to_hex(bytes)) << path_of(sample);
    }
    if (accepting()) GTEST_SKIP() << "SANDBOX_ACCEPT=1: golden files rewritten, review them";
}

TEST(WireGolden, EveryFileDecodesToItsMessage)
{
    if (accepting()) GTEST_SKIP() << "SANDBOX_ACCEPT=1: golden files are being rewritten";
    for (const Sample& sample : samples()) {
        const ByteVector bytes = from_hex(read(path_of(sample)));
        const auto decoded = decode_any(sample.port, sample.direction,
                                        stage_of(type_of(sample.message)), bytes);
        ASSERT_TRUE(decoded) << path_of(sample) << ": " << Error(decoded.error()).message();
        EXPECT_EQ(*decoded, sample.message) << path_of(sample);
    }
}

TEST(WireGolden, EveryRowOfTheTableHasAFileOnItsPort)
{
    std::map<std::uint8_t, std::set<Port>> covered;
    for (const Sample& sample : samples()) covered[type_of(sample.message)].insert(sample.port);
    for (const TypeInfo& row : message_table()) {
        ASSERT_TRUE(covered.contains(row.type)) << row.name;
        if (row.port != Port::any) {
            EXPECT_EQ(covered[row.type], std::set{row.port}) << row.name;
        }
    }
}

TEST(WireGolden, EveryNegativeFileFailsWithTheErrorItNames)
{
    for (const NegativeCase& negative : negative_cases()) {
        const fs::path path = path_of(negative);
        if (accepting()) {
            write(path, "# " + negative.why + "\n# error: " +
                            std::string(to_string(negative.error)) + "\n" + to_hex(negative.bytes));
            continue;
        }
        const std::string text = read(path);
        EXPECT_EQ(comment(text, "error"), to_string(negative.error)) << path;
        const ByteVector bytes = from_hex(text);
        EXPECT_EQ(to_hex(bytes), to_hex(negative.bytes)) << path;
        const auto decoded = decode_any(negative.port, negative.direction, negative.stage, bytes);
        ASSERT_FALSE(decoded) << path;
        EXPECT_EQ(to_string(decoded.error().error), comment(text, "error")) << path;
    }
    if (accepting()) GTEST_SKIP() << "SANDBOX_ACCEPT=1: golden files rewritten, review them";
}

TEST(WireGolden, NoFileIsLeftWithoutACase)
{
    std::set<fs::path> known;
    for (const Sample& sample : samples()) known.insert(path_of(sample));
    for (const NegativeCase& negative : negative_cases()) known.insert(path_of(negative));
    for (const auto& entry : fs::recursive_directory_iterator(corpus())) {
        if (!entry.is_regular_file()) continue;
        EXPECT_TRUE(known.contains(entry.path())) << entry.path();
    }
}

}  // namespace sandbox::wire::test
