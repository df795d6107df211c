// SPDX-License-Identifier: Apache-2.0
#include "base/tar.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace sandbox::tar {
namespace {

struct Read {
    std::vector<Entry> entries;
    std::vector<std::string> contents;
    bool ended = false;
};

Result<Read> read_in_pieces(std::string_view archive, std::size_t piece, Limits limits = {})
{
    Reader reader(limits);
    Read read;
    while (!archive.empty() && !reader.ended()) {
        const std::string_view part = archive.substr(0, piece);
        archive.remove_prefix(part.size());
        std::span<const std::byte> bytes = std::as_bytes(std::span(part));
        while (true) {
            auto item = TRY(reader.next(bytes));
            if (auto* entry = std::get_if<Entry>(&item)) {
                read.entries.push_back(*entry);
                read.contents.emplace_back();
            } else if (const auto* data = std::get_if<Reader::Data>(&item)) {
                read.contents.back().append(reinterpret_cast<const char*>(data->bytes.data()),
                                            data->bytes.size());
            } else {
                break;
            }
        }
    }
    read.ended = reader.ended();
    return read;
}

std::string member(const Entry& entry, std::string_view content = {})
{
    return header_of(entry) + std::string(content) + std::string(padding_of(content.size()), '\0');
}

Entry file(std::string name, std::uint64_t size = 0)
{
    return {Kind::file, std::move(name), {}, 0640, 1000, 1000, 1'700'000'000, size};
}

std::string archive_of(const Entry& entry) { return member(entry) + end_of_archive(); }

// A header as another program could have written it: one field changed, the checksum right.
std::string forged(std::string block, std::size_t at, std::string_view bytes)
{
    block.replace(at, bytes.size(), bytes);
    block.replace(148, 8, "        ");
    unsigned sum = 0;
    for (const char c : block) sum += static_cast<unsigned char>(c);
    std::string digits(6, '0');
    for (std::size_t i = 6; i-- > 0; sum >>= 3) digits[i] = static_cast<char>('0' + (sum & 7));
    block.replace(148, 8, digits + std::string("\0 ", 2));
    return block;
}

Code code_of(std::string_view archive, Limits limits = {})
{
    const auto read = read_in_pieces(archive, 4096, limits);
    return read ? Code::internal : read.error().code();
}

TEST(Tar, ReadsBackWhatItWroteWhateverThePieces)
{
    const std::string longest = std::string(255, 'n') + "/" + std::string(255, 'm');
    std::vector<Entry> entries{
        {Kind::directory, "d", {}, 0755, 0, 0, 1, 0},
        file("d/f", 5),
        {Kind::symlink, "d/l", "../../etc/passwd", 0777, 0, 0, 2, 0},
        {Kind::hardlink, "d/h", "d/f", 0600, 0, 0, 3, 0},
        file("d/" + longest),
        {Kind::symlink, "d/long", std::string(kMostName, 't'), 0777, 0, 0, -5, 0},
        {Kind::file, "größe \n x", {}, 0, 4'000'000, 4'000'000, 1LL << 40, 0},
    };
    std::string archive;
    for (const Entry& entry : entries) archive += member(entry, entry.size > 0 ? "hello" : "");
    archive += end_of_archive();
    for (const std::size_t piece : {1UL, 7UL, 512UL, 513UL, 1UL << 20}) {
        const auto read = read_in_pieces(archive, piece);
        ASSERT_TRUE(read) << read.error().message();
        ASSERT_EQ(read->entries.size(), entries.size());
        for (std::size_t i = 0; i < entries.size(); ++i) {
            Entry expected = entries[i];
            expected.uid = expected.gid = 0;
            EXPECT_EQ(read->entries[i], expected) << i;
        }
        EXPECT_EQ(read->contents[1], "hello");
        EXPECT_TRUE(read->ended);
    }
}

TEST(Tar, AnArchiveCutAnywhereIsNotTakenForWhole)
{
    const std::string archive = member(file("f", 600), std::string(600, 'x')) + end_of_archive();
    for (std::size_t size = 0; size < archive.size(); ++size) {
        const auto read = read_in_pieces(archive.substr(0, size), 512);
        ASSERT_TRUE(read);
        EXPECT_FALSE(read->ended) << size;
    }
}

TEST(Tar, NamesThatLeadOutAreRefused)
{
    for (const char* name : {"/etc/passwd", "../x", "a/../../x", "a/..", ".."})
        EXPECT_EQ(code_of(archive_of(file(name))), Code::invalid_argument) << name;
    EXPECT_EQ(clean_name("./a//b/./c/", 8).value(), "a/b/c");
    EXPECT_EQ(clean_name("./", 8).value(), ".");
    EXPECT_FALSE(clean_name("", 8));
    EXPECT_FALSE(clean_name(std::string_view("a\0b", 3), 8));
    EXPECT_FALSE(clean_name(std::string(256, 'a'), 8));
    EXPECT_FALSE(clean_name("a/b/c", 2));
    EXPECT_FALSE(clean_name(std::string(3000, 'a') + "/" + std::string(3000, 'b'), 8));
}

TEST(Tar, AHardLinkMayNotNameWhatLiesOutside)
{
    const Entry link{Kind::hardlink, "h", "../../etc/shadow", 0600, 0, 0, 0, 0};
    EXPECT_EQ(code_of(archive_of(link)), Code::invalid_argument);
}

TEST(Tar, DevicesFifosAndSparseFilesAreRefused)
{
    for (const char type : {'3', '4', '6', 'S', 'V', 'M'})
        EXPECT_EQ(code_of(forged(header_of(file("x")), 156, {&type, 1})), Code::invalid_argument)
            << type;
}

TEST(Tar, EachLimitIsNamed)
{
    const std::string two = member(file("a", 3), "abc") + member(file("b", 3), "abc");
    EXPECT_EQ(code_of(two, {.bytes = 5}), Code::resource_exhausted);
    EXPECT_EQ(code_of(two, {.entries = 1}), Code::resource_exhausted);
    // A sparse bomb costs one header.
    EXPECT_EQ(code_of(archive_of(file("huge", 1ULL << 50))), Code::resource_exhausted);
    EXPECT_EQ(code_of(archive_of(file("most", ~0ULL >> 1))), Code::resource_exhausted);
    const auto read = read_in_pieces(two + end_of_archive(), 4096, {.bytes = 6, .entries = 2});
    EXPECT_TRUE(read);
}

TEST(Tar, EndlessExtendedHeadersEnd)
{
    std::string archive;
    const std::string header = forged(header_of(file("x")), 156, "g");
    for (int i = 0; i < 100; ++i) archive += header;
    EXPECT_EQ(code_of(archive), Code::corrupt);
    EXPECT_EQ(code_of(forged(header_of(file("x", 1U << 20)), 156, "L")), Code::resource_exhausted);
}

TEST(Tar, DamageIsFound)
{
    std::string archive = archive_of(file("x"));
    archive[3] ^= 1;
    EXPECT_EQ(code_of(archive), Code::corrupt);
    EXPECT_EQ(code_of(std::string(512, 'z')), Code::corrupt);
    EXPECT_EQ(code_of(forged(header_of(file("x")), 257, "xstar")), Code::corrupt);
    EXPECT_EQ(code_of(forged(header_of(file("x")), 124, "9")), Code::corrupt);
    EXPECT_EQ(code_of(std::string(512, '\0') + archive_of(file("x"))), Code::corrupt);
    // A folder with content would shift everything behind it.
    EXPECT_EQ(code_of(forged(header_of(file("x", 8)), 156, "5")), Code::corrupt);
}

TEST(Tar, PaxRecordsAreReadStrictly)
{
    const auto with_pax = [](std::string_view records, char type = 'x') {
        const std::string header = forged(header_of(file("p", records.size())), 156, {&type, 1});
        return header + std::string(records) + std::string(padding_of(records.size()), '\0') +
               archive_of(file("x"));
    };
    auto read = read_in_pieces(with_pax("12 path=a/b\n"), 4096);
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(read->entries.at(0).name, "a/b");
    read = read_in_pieces(with_pax("19 mtime=-12.75000\n16 comment=good\n"), 4096);
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(read->entries.at(0).mtime, -12);
    EXPECT_TRUE(read_in_pieces(with_pax("16 comment=good\n", 'g'), 4096));
    for (const char* bad : {"12 path=a/c", "99 path=a/b\n", "3 a\n", "12 pathXa/b\n", "path=a\n",
                            "8 path=\n", "9 size=x\n", "13 path=../b\n", "7 path\n", "-1 a=b\n"})
        EXPECT_NE(code_of(with_pax(bad)), Code::internal) << bad;
    EXPECT_EQ(code_of(with_pax("12 path=a/b\n", 'g')), Code::corrupt);
    EXPECT_EQ(code_of(with_pax("22 GNU.sparse.major=1\n")), Code::invalid_argument);
}

TEST(Tar, ReadsWhatGnuTarWritesByDefault)
{
    const std::string name(120, 'g');
    std::string block = forged(header_of(file("././@LongLink", name.size() + 1)), 257,
                               std::string_view("ustar  \0", 8));
    block = forged(block, 156, "L");
    std::string archive = block + name + std::string(kBlock - name.size(), '\0');
    std::string own = forged(header_of(file("short")), 257, std::string_view("ustar  \0", 8));
    // Base 256: what eleven octal digits cannot say.
    own = forged(own, 136, std::string_view("\x80\0\0\0\0\0\0\0\0\0\1\0", 12));
    archive += own + end_of_archive();
    const auto read = read_in_pieces(archive, 100);
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(read->entries.at(0).name, name);
    EXPECT_EQ(read->entries.at(0).mtime, 256);
    EXPECT_EQ(
        code_of(forged(header_of(file("x")), 124,
                       std::string_view("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 12))),
        Code::corrupt);
}

TEST(Tar, SetIdAndStickyBitsAreDropped)
{
    const auto read = read_in_pieces(
        forged(header_of(file("x")), 100, "0007755") + end_of_archive(), 4096);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->entries.at(0).mode, 0755U);
}

}  // namespace
}  // namespace sandbox::tar
