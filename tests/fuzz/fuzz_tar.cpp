// SPDX-License-Identifier: Apache-2.0
#include "base/tar.hpp"
#include "fuzz.hpp"

// The stream of a copy, from whoever is on the other side. Reading it in one piece and byte by byte
// gives the same; no name leads out; no limit is passed; what was read can be written and read
// again.
namespace sandbox::fuzz {

namespace {

constexpr tar::Limits kLimits{.bytes = 1U << 16, .entries = 64, .depth = 16};
// A block, two long names and what an entry and its error hold.
constexpr std::size_t kMostHeld = 512U << 10;

struct Seen {
    std::vector<tar::Entry> entries;
    std::string content;
    bool ended = false;
    bool failed = false;
    bool operator==(const Seen&) const = default;
};

Seen read(std::string_view input, std::size_t piece)
{
    Seen seen;
    tar::Reader reader(kLimits);
    while (!input.empty() && !seen.failed && !reader.ended()) {
        std::span<const std::byte> bytes = as_bytes(input.substr(0, piece));
        input.remove_prefix(bytes.size());
        while (true) {
            auto item = reader.next(bytes);
            if (!item) {
                seen.failed = true;
                break;
            }
            if (auto* entry = std::get_if<tar::Entry>(&*item)) {
                seen.entries.push_back(std::move(*entry));
            } else if (const auto* data = std::get_if<tar::Reader::Data>(&*item)) {
                HOLDS(!data->bytes.empty());
                seen.content.append(reinterpret_cast<const char*>(data->bytes.data()),
                                    data->bytes.size());
            } else {
                break;
            }
        }
    }
    seen.ended = reader.ended();
    return seen;
}

bool stays_inside(const std::string& name)
{
    return !name.empty() && name.front() != '/' && name.size() <= tar::kMostName &&
           name.find('\0') == std::string::npos &&
           ("/" + name + "/").find("/../") == std::string::npos;
}

// A changed byte breaks its block's checksum, which would be all that is ever tried.
std::string with_checksums(std::string archive)
{
    for (std::size_t at = 0; at + tar::kBlock <= archive.size(); at += tar::kBlock) {
        if (archive.compare(at + 257, 5, "ustar") != 0) continue;
        archive.replace(at + 148, 8, "        ");
        unsigned sum = 0;
        for (std::size_t i = 0; i < tar::kBlock; ++i)
            sum += static_cast<unsigned char>(archive[at + i]);
        archive[at + 154] = '\0';
        for (std::size_t i = 6; i-- > 0; sum >>= 3)
            archive[at + 148 + i] = static_cast<char>('0' + (sum & 7));
    }
    return archive;
}

void try_one(std::string_view input)
{
    const std::size_t before = allocated();
    const Seen seen = read(input, input.size());
    HOLDS(allocated() - before < kMostHeld + 8 * input.size());
    HOLDS(seen == read(input, 37));
    HOLDS(seen.entries.size() <= kLimits.entries);
    HOLDS(seen.content.size() <= kLimits.bytes);
    for (const tar::Entry& entry : seen.entries) {
        HOLDS(stays_inside(entry.name));
        HOLDS(entry.kind != tar::Kind::hardlink || stays_inside(entry.target));
        HOLDS((entry.mode & ~0777U) == 0);
        if (entry.size > 0) continue;
        const Seen again = read(tar::header_of(entry) + tar::end_of_archive(), 512);
        HOLDS(again.ended && again.entries.size() == 1 && again.entries[0] == entry);
    }
}

}  // namespace

FUZZ_TARGET(tar)
{
    try_one(input);
    try_one(with_checksums(std::string(input)));
}

}  // namespace sandbox::fuzz
