// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace sandbox::ledger::test {

TempDir::TempDir()
{
    std::string pattern = "/tmp/ledger-test-XXXXXX";
    path_ = mkdtemp(pattern.data());
}

TempDir::~TempDir()
{
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

SandboxId id(unsigned number)
{
    char text[33];
    std::snprintf(text, sizeof text, "%032x", number);
    return SandboxId(text);
}

Sandbox sandbox(unsigned number, const std::string& name)
{
    Sandbox s;
    s.id = id(number);
    s.name = SandboxName(name);
    s.profile = "pytool";
    s.driver = "oci";
    s.isolation_class = "shared-kernel";
    s.plan_digest = "sha256:" + std::string(64, 'a');
    s.plan_path = "/var/lib/sandbox/sandboxes/" + s.id.str() + "/plan.json";
    s.log_path = "/var/lib/sandbox/sandboxes/" + s.id.str() + "/logs";
    s.state = State::prepared;
    s.created = {"2026-01-02T03:04:05.678Z", 42, "boot"};
    s.labels = R"({"team":"ml"})";
    s.request_digest = "sha256:" + std::string(64, 'b');
    return s;
}

ProcessIdentity self() { return VALUE(sys::identity_of(getpid())); }

Ledger open(const TempDir& dir, OpenMode mode) { return VALUE(Ledger::open(dir.host(), mode)); }

void add(Ledger& ledger, const Sandbox& sandbox)
{
    auto transaction = VALUE(ledger.begin());
    EXPECT_OK(transaction.insert(sandbox));
    EXPECT_OK(transaction.commit());
}

std::string read_bytes(const std::string& path)
{
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_bytes(const std::string& path, const std::string& bytes)
{
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::size_t wal_end(const std::string& wal)
{
    constexpr std::size_t kHeader = 32;
    constexpr std::size_t kFrame = 24 + 4096;
    if (wal.size() < kHeader || wal.substr(0, 4) == std::string(4, '\0')) return 0;
    const std::string salts = wal.substr(16, 8);
    std::size_t end = kHeader;
    while (end + kFrame <= wal.size() && wal.substr(end + 8, 8) == salts) end += kFrame;
    return end;
}

void copy_ledger(const TempDir& from, const TempDir& to)
{
    for (const auto* name : {"ledger.db", "ledger.db-wal"}) {
        std::error_code error;
        std::filesystem::copy_file(from.file(name), to.file(name),
                                   std::filesystem::copy_options::overwrite_existing, error);
    }
}

}  // namespace sandbox::ledger::test
