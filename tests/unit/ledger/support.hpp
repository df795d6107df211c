// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "ledger/ledger.hpp"

namespace sandbox::ledger::test {

// A folder below /tmp that is gone afterwards.
class TempDir {
public:
    TempDir();
    ~TempDir();
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;
    const std::string& path() const { return path_; }
    HostPath host() const { return HostPath(path_); }
    std::string file(const std::string& name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

// An id that a reader recognises: the number, in hex, padded with zeros.
SandboxId id(unsigned number);
Sandbox sandbox(unsigned number, const std::string& name);
ProcessIdentity self();

Ledger open(const TempDir& dir, OpenMode mode = OpenMode::create);
// Inserts and commits.
void add(Ledger& ledger, const Sandbox& sandbox);

std::string read_bytes(const std::string& path);
void write_bytes(const std::string& path, const std::string& bytes);
// Where the newest frame ends that belongs to the WAL's header, 0 without a header: the file may be
// longer (SQLite file format, 4.1 and 4.2).
std::size_t wal_end(const std::string& wal);
void copy_ledger(const TempDir& from, const TempDir& to);

template <class T>
testing::AssertionResult succeeded(const Result<T>& result)
{
    if (result) return testing::AssertionSuccess();
    return testing::AssertionFailure() << result.error().message();
}

template <class T>
testing::AssertionResult failed_with(const Result<T>& result, Code wanted)
{
    if (result) return testing::AssertionFailure() << "succeeded, wanted " << to_string(wanted);
    if (result.error().code() == wanted) return testing::AssertionSuccess();
    return testing::AssertionFailure()
           << "wanted " << to_string(wanted) << ", got " << to_string(result.error().code()) << ": "
           << result.error().message();
}

inline constexpr std::uint64_t kFarFuture = 1ULL << 62;

}  // namespace sandbox::ledger::test

// Fails the test with the error's message, or yields the value.
#define VALUE(expr)                                                           \
    __extension__({                                                           \
        auto value_result_ = (expr);                                          \
        if (!value_result_) ADD_FAILURE() << value_result_.error().message(); \
        std::move(value_result_).value();                                     \
    })

#define EXPECT_OK(expr) EXPECT_TRUE(::sandbox::ledger::test::succeeded(expr))
#define EXPECT_CODE(expr, wanted) EXPECT_TRUE(::sandbox::ledger::test::failed_with(expr, wanted))
