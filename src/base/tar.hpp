// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.hpp"

// The tar format as `cp` speaks it: ustar with pax records, and what GNU tar writes by default.
// Pure: bytes in, entries out. Linked by both sides of a copy, each of which takes the other's
// stream for hostile.
namespace sandbox::tar {

inline constexpr std::size_t kBlock = 512;
inline constexpr std::size_t kMostName = 4095;  // PATH_MAX without its NUL
inline constexpr std::size_t kMostComponent = 255;  // NAME_MAX

enum class Kind : std::uint8_t { file, directory, symlink, hardlink };

struct Entry {
    Kind kind = Kind::file;
    std::string name;    // "." or "a/b/c": relative, no "..", no empty component
    std::string target;  // of a symlink: as it stands; of a hard link: a name as above
    std::uint32_t mode = 0;  // permission bits only
    std::uint32_t uid = 0;   // written for people to see; readers ignore both
    std::uint32_t gid = 0;
    std::int64_t mtime = 0;  // seconds since the epoch
    std::uint64_t size = 0;  // of a file's content
    bool operator==(const Entry&) const = default;
};

// What a copy may cost. Beyond it the copy ends with Code::resource_exhausted, naming the limit.
struct Limits {
    std::uint64_t bytes = 4ULL << 30;  // of content
    std::uint64_t entries = 1'000'000;
    std::size_t depth = 256;  // components of a name
    bool operator==(const Limits&) const = default;
};

struct Tally {
    std::uint64_t entries = 0;
    std::uint64_t files = 0;
    std::uint64_t bytes = 0;

    // Counts one entry, or says which limit it breaks.
    [[nodiscard]] Status add(const Entry& entry, const Limits& limits);
};

// The blocks before an entry's content. Requires: a name and target of at most kMostName bytes
// without NUL.
std::string header_of(const Entry& entry);
// Zeros behind `size` bytes of content.
std::size_t padding_of(std::uint64_t size) noexcept;
// The two zero blocks that end an archive.
std::string end_of_archive();

// "./a//b/" becomes "a/b". Code::invalid_argument: absolute, with "..", empty, with NUL, or too
// long or deep.
[[nodiscard]] Result<std::string> clean_name(std::string_view name, std::size_t most_depth);

// Reads an archive from pieces of any size. Holds at most one block and the long names of one
// entry. After an error nothing more may be read.
class Reader {
public:
    struct More {};  // all bytes were taken
    struct Data {
        std::span<const std::byte> bytes;  // of the last entry, part of the input
    };
    struct End {};
    using Item = std::variant<More, Entry, Data, End>;

    explicit Reader(Limits limits) : limits_(limits) {}

    // Takes from the front of `bytes`. Devices, FIFOs and sparse files are Code::invalid_argument,
    // damage is Code::corrupt, a limit Code::resource_exhausted.
    [[nodiscard]] Result<Item> next(std::span<const std::byte>& bytes);
    // The two zero blocks were seen: an archive that just stops is cut.
    bool ended() const noexcept { return state_ == State::ended; }
    const Tally& tally() const noexcept { return tally_; }

private:
    enum class State { header, extended, content, padding, ended };
    enum class Extended { pax, global, gnu_name, gnu_target };

    bool collect(std::span<const std::byte>& bytes, std::size_t wanted);
    void skip_padding(std::uint64_t size, State after);
    [[nodiscard]] Result<Item> take_header();
    [[nodiscard]] Result<Item> begin_extended(char type, std::uint64_t size);
    [[nodiscard]] Status take_extended();
    [[nodiscard]] Status take_pax(std::string_view records);
    [[nodiscard]] Result<Entry> finish_entry(std::string_view block, char type);

    Limits limits_;
    Tally tally_;
    State state_ = State::header;
    State after_padding_ = State::header;
    std::string held_;  // of a block or an extended header
    std::uint64_t left_ = 0;  // content or padding to come
    std::size_t extended_size_ = 0;
    Extended extended_ = Extended::pax;
    int extended_count_ = 0;
    bool zero_block_ = false;
    // What extended headers said of the next entry; empty strings and no flag: nothing.
    std::string name_;
    std::string target_;
    std::uint64_t size_ = 0;
    std::int64_t mtime_ = 0;
    bool has_size_ = false;
    bool has_mtime_ = false;
};

}  // namespace sandbox::tar
