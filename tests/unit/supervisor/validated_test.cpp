// SPDX-License-Identifier: Apache-2.0
#include "supervisor/validated.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include <sys/stat.h>
#include <unistd.h>

namespace sandbox::supervisor {
namespace {

using profile::Schema;

class ValidatedTexts : public testing::Test {
protected:
    ValidatedTexts() { mkdtemp(folder_.data()); }
    ~ValidatedTexts() override
    {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }
    ValidatedTexts(const ValidatedTexts&) = delete;
    ValidatedTexts& operator=(const ValidatedTexts&) = delete;

    Schema look(std::string_view text, std::string_view schema = "config") const
    {
        return Validated(folder_, schema, text).schema();
    }
    void remember(std::string_view text) const { Validated(folder_, "config", text).remember(); }
    std::string file() const { return folder_ + "/validated"; }

    std::string folder_ = "/tmp/sandbox-unit-XXXXXX";
};

TEST_F(ValidatedTexts, AreKnownOnceRemembered)
{
    EXPECT_EQ(look("version = 1"), Schema::check);
    remember("version = 1");
    EXPECT_EQ(look("version = 1"), Schema::known);
}

TEST_F(ValidatedTexts, ADifferentByteOrSchemaIsNotKnown)
{
    remember("version = 1");
    EXPECT_EQ(look("version = 1\n"), Schema::check);
    EXPECT_EQ(look("version = 1", "profile"), Schema::check);
}

TEST_F(ValidatedTexts, AFileOthersCouldHaveWrittenIsNotBelieved)
{
    remember("version = 1");
    chmod(file().c_str(), 0620);
    EXPECT_EQ(look("version = 1"), Schema::check);
    chmod(file().c_str(), 0600);
    chmod(folder_.c_str(), 0770);
    EXPECT_EQ(look("version = 1"), Schema::check);
    chmod(folder_.c_str(), 0700);
    EXPECT_EQ(look("version = 1"), Schema::known);
}

TEST_F(ValidatedTexts, ALinkIsNotFollowed)
{
    remember("version = 1");
    std::filesystem::rename(file(), folder_ + "/elsewhere");
    std::filesystem::create_symlink(folder_ + "/elsewhere", file());
    EXPECT_EQ(look("version = 1"), Schema::check);
}

TEST_F(ValidatedTexts, AHalfLineIsNotALine)
{
    remember("version = 1");
    const std::string whole = [&] {
        std::ifstream in(file());
        return std::string(std::istreambuf_iterator<char>(in), {});
    }();
    for (std::size_t size = 0; size < whole.size(); ++size) {
        std::filesystem::resize_file(file(), size);
        EXPECT_EQ(look("version = 1"), Schema::check) << size;
        std::ofstream(file()) << whole;
    }
    EXPECT_EQ(look("version = 1"), Schema::known);
}

TEST_F(ValidatedTexts, TheFileStaysSmallAndKeepsTheNewest)
{
    for (int i = 0; i < 200; ++i) remember(std::to_string(i));
    EXPECT_LT(std::filesystem::file_size(file()), 6000U);
    EXPECT_EQ(look("199"), Schema::known);
    EXPECT_EQ(look("0"), Schema::check);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(ValidatedTexts, NoFolderKnowsNothingAndMakesNothing)
{
    Validated("", "config", "version = 1").remember();
    Validated(folder_ + "/absent", "config", "version = 1").remember();
    EXPECT_EQ(Validated(folder_ + "/absent", "config", "version = 1").schema(), Schema::check);
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/absent"));
}

}  // namespace
}  // namespace sandbox::supervisor
