// SPDX-License-Identifier: Apache-2.0
#include "ledger/reserve.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "support.hpp"
#include "sys/file.hpp"

namespace sandbox::ledger {
namespace {

off_t size_of(const std::string& path)
{
    struct stat info{};
    return stat(path.c_str(), &info) == 0 ? info.st_size : -1;
}

TEST(Reserve, IsMadeOnceSpentInPiecesAndFilledUpAgain)
{
    const test::TempDir dir;
    const auto folder = sys::open_dir(dir.path());
    ASSERT_TRUE(folder);
    const std::string path = dir.path() + "/" + std::string(kReserveName);
    ASSERT_TRUE(keep_reserve(folder->get()));
    const off_t whole = size_of(path);
    EXPECT_GE(whole, 1 << 20);
    EXPECT_TRUE(spend_reserve(path));
    EXPECT_LT(size_of(path), whole);
    EXPECT_GT(size_of(path), 0);
    int pieces = 1;
    while (spend_reserve(path)) ++pieces;
    EXPECT_GE(pieces, 4);
    EXPECT_EQ(size_of(path), 0);
    ASSERT_TRUE(keep_reserve(folder->get()));
    EXPECT_EQ(size_of(path), whole);
}

TEST(Reserve, IsNothingWhereNobodyMadeIt)
{
    const test::TempDir dir;
    EXPECT_FALSE(spend_reserve(dir.path() + "/" + std::string(kReserveName)));
    EXPECT_FALSE(spend_reserve(dir.path()));
}

}  // namespace
}  // namespace sandbox::ledger
