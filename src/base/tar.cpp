// SPDX-License-Identifier: Apache-2.0
#include "base/tar.hpp"

#include <algorithm>
#include <charconv>

namespace sandbox::tar {

namespace {

// Offsets and widths of a ustar header (POSIX.1-2017, pax, "ustar Interchange Format").
struct Field {
    std::size_t at;
    std::size_t size;
};
constexpr Field kName{0, 100};
constexpr Field kMode{100, 8};
constexpr Field kUid{108, 8};
constexpr Field kGid{116, 8};
constexpr Field kSize{124, 12};
constexpr Field kTime{136, 12};
constexpr Field kSum{148, 8};
constexpr std::size_t kTypeAt = 156;
constexpr Field kTarget{157, 100};
constexpr Field kMagic{257, 8};
constexpr Field kPrefix{345, 155};

constexpr std::string_view kPosixMagic("ustar\00000", 8);
constexpr std::string_view kGnuMagic("ustar  \0", 8);
constexpr std::uint64_t kMostOctalSize = (1ULL << 33) - 1;  // eleven digits
constexpr std::uint32_t kMostOctalId = (1U << 21) - 1;      // seven digits
constexpr std::size_t kMostExtended = 32U << 10;  // two names and what else pax may say
constexpr int kMostExtendedHeaders = 8;           // before one entry
constexpr std::uint32_t kPermissionBits = 0777;

std::unexpected<Error> damaged(const char* what)
{
    return fail(Code::corrupt, std::string("the archive is damaged: ") + what);
}

std::string_view field(std::string_view block, Field f) { return block.substr(f.at, f.size); }

// Up to the first NUL, or all of it.
std::string_view text(std::string_view block, Field f)
{
    const std::string_view all = field(block, f);
    return all.substr(0, std::min(all.find('\0'), all.size()));
}

// Octal with leading spaces, ended by spaces or NULs; or GNU's big-endian binary with the top bit
// set, of which eight bytes are taken. Nothing for anything else.
bool parse_number(std::string_view digits, std::int64_t& value)
{
    value = 0;
    const auto first = static_cast<unsigned char>(digits.front());
    if (first == 0x80 || first == 0xFF) {
        const std::size_t skipped = digits.size() - std::min<std::size_t>(digits.size(), 8);
        for (std::size_t i = 1; i < skipped; ++i)
            if (static_cast<unsigned char>(digits[i]) != (first == 0xFF ? 0xFF : 0)) return false;
        std::uint64_t bits = first == 0xFF ? ~0ULL : 0;
        for (const char c : digits.substr(std::max<std::size_t>(skipped, 1)))
            bits = bits << 8 | static_cast<unsigned char>(c);
        value = static_cast<std::int64_t>(bits);
        return (value < 0) == (first == 0xFF);
    }
    while (!digits.empty() && digits.front() == ' ') digits.remove_prefix(1);
    while (!digits.empty() && (digits.back() == ' ' || digits.back() == '\0'))
        digits.remove_suffix(1);
    // Eleven or twelve digits of three bits: no overflow.
    for (const char c : digits) {
        if (c < '0' || c > '7') return false;
        value = value * 8 + (c - '0');
    }
    return true;
}

std::uint32_t checksum(std::string_view block)
{
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < kBlock; ++i) {
        const bool blank = i >= kSum.at && i < kSum.at + kSum.size;
        sum += blank ? ' ' : static_cast<unsigned char>(block[i]);
    }
    return sum;
}

void put(std::string& block, Field f, std::string_view value)
{
    block.replace(f.at, std::min(f.size, value.size()), value.substr(0, f.size));
}

void put_octal(std::string& block, Field f, std::uint64_t value)
{
    // The last byte stays NUL.
    for (std::size_t i = f.size - 1; i-- > 0; value >>= 3)
        block[f.at + i] = static_cast<char>('0' + (value & 7));
}

std::string block_of(char type, std::string_view name, std::uint64_t size)
{
    std::string block(kBlock, '\0');
    put(block, kName, name);
    put_octal(block, kMode, 0644);
    put_octal(block, kUid, 0);
    put_octal(block, kGid, 0);
    put_octal(block, kSize, size);
    put_octal(block, kTime, 0);
    block[kTypeAt] = type;
    put(block, kMagic, kPosixMagic);
    return block;
}

void seal(std::string& block)
{
    put_octal(block, {kSum.at, kSum.size - 1}, checksum(block));
    block[kSum.at + kSum.size - 1] = ' ';
}

// "LENGTH KEY=VALUE\n", the length counting itself.
std::string pax_record(std::string_view key, std::string_view value)
{
    const std::size_t rest = key.size() + value.size() + 3;
    std::size_t length = rest + 1;
    while (std::to_string(length).size() + rest != length)
        length = rest + std::to_string(length).size();
    std::string record = std::to_string(length);
    record += ' ';
    record += key;
    record += '=';
    record += value;
    record += '\n';
    return record;
}

char type_of(Kind kind)
{
    switch (kind) {
    case Kind::file: return '0';
    case Kind::directory: return '5';
    case Kind::symlink: return '2';
    case Kind::hardlink: return '1';
    }
    return '0';
}

template <class T>
bool parse_decimal(std::string_view digits, T& value)
{
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size();
}

}  // namespace

Status Tally::add(const Entry& entry, const Limits& limits)
{
    if (entries >= limits.entries)
        return fail(Code::resource_exhausted,
                    "more than " + std::to_string(limits.entries) + " files and folders");
    if (entry.size > limits.bytes - std::min(bytes, limits.bytes))
        return fail(Code::resource_exhausted, "more than " + std::to_string(limits.bytes) +
                                                  " bytes (the copy's size limit), at " +
                                                  entry.name);
    ++entries;
    files += entry.kind == Kind::directory ? 0 : 1;
    bytes += entry.size;
    return {};
}

std::string header_of(const Entry& entry)
{
    std::string name = entry.name;
    if (entry.kind == Kind::directory) name += '/';
    std::string records;
    if (name.size() > kName.size) records += pax_record("path", name);
    if (entry.target.size() > kTarget.size) records += pax_record("linkpath", entry.target);
    if (entry.size > kMostOctalSize) records += pax_record("size", std::to_string(entry.size));
    const bool plain_time = entry.mtime >= 0 &&
                            static_cast<std::uint64_t>(entry.mtime) <= kMostOctalSize;
    if (!plain_time) records += pax_record("mtime", std::to_string(entry.mtime));

    std::string blocks;
    if (!records.empty()) {
        blocks = block_of('x', "PaxHeaders/entry", records.size());
        seal(blocks);
        blocks += records;
        blocks.append(padding_of(records.size()), '\0');
    }
    std::string block = block_of(type_of(entry.kind), name,
                                 entry.size > kMostOctalSize ? 0 : entry.size);
    put(block, kTarget, entry.target);
    put_octal(block, kMode, entry.mode & kPermissionBits);
    if (entry.uid <= kMostOctalId) put_octal(block, kUid, entry.uid);
    if (entry.gid <= kMostOctalId) put_octal(block, kGid, entry.gid);
    if (plain_time) put_octal(block, kTime, static_cast<std::uint64_t>(entry.mtime));
    seal(block);
    return blocks + block;
}

std::size_t padding_of(std::uint64_t size) noexcept
{
    return (kBlock - static_cast<std::size_t>(size % kBlock)) % kBlock;
}

std::string end_of_archive() { return std::string(2 * kBlock, '\0'); }

Result<std::string> clean_name(std::string_view name, std::size_t most_depth)
{
    const auto refuse = [](const char* why) {
        return fail(Code::invalid_argument, std::string("a name in the archive ") + why);
    };
    if (name.empty()) return refuse("is empty");
    if (name.size() > kMostName + 1) return refuse("is longer than 4095 bytes");
    if (name.find('\0') != std::string_view::npos) return refuse("holds a NUL");
    if (name.front() == '/') return refuse("is absolute");
    std::string cleaned;
    std::size_t depth = 0;
    while (!name.empty()) {
        const std::size_t end = std::min(name.find('/'), name.size());
        const std::string_view part = name.substr(0, end);
        name.remove_prefix(std::min(end + 1, name.size()));
        if (part.empty() || part == ".") continue;
        if (part == "..") return refuse("leads upwards (..)");
        if (part.size() > kMostComponent) return refuse("has a component longer than 255 bytes");
        if (++depth > most_depth) return refuse("is nested too deep");
        if (!cleaned.empty()) cleaned += '/';
        cleaned += part;
    }
    if (cleaned.size() > kMostName) return refuse("is longer than 4095 bytes");
    if (cleaned.empty()) cleaned = ".";
    return cleaned;
}

// Fills held_ up to `wanted` bytes; true once it is full.
bool Reader::collect(std::span<const std::byte>& bytes, std::size_t wanted)
{
    const std::size_t count = std::min(bytes.size(), wanted - held_.size());
    held_.append(reinterpret_cast<const char*>(bytes.data()), count);
    bytes = bytes.subspan(count);
    return held_.size() == wanted;
}

void Reader::skip_padding(std::uint64_t size, State after)
{
    left_ = padding_of(size);
    state_ = State::padding;
    after_padding_ = after;
}

Result<Reader::Item> Reader::next(std::span<const std::byte>& bytes)
{
    while (state_ != State::ended) {
        if (state_ == State::content) {
            if (left_ == 0) {
                skip_padding(size_, State::header);
                size_ = 0;
                continue;
            }
            if (bytes.empty()) return More{};
            const auto count = static_cast<std::size_t>(
                std::min<std::uint64_t>(left_, bytes.size()));
            const Data data{bytes.first(count)};
            bytes = bytes.subspan(count);
            left_ -= count;
            return data;
        }
        if (state_ == State::padding) {
            const std::size_t count = std::min<std::size_t>(left_, bytes.size());
            bytes = bytes.subspan(count);
            left_ -= count;
            if (left_ > 0) return More{};
            state_ = after_padding_;
            continue;
        }
        if (!collect(bytes, state_ == State::header ? kBlock : extended_size_)) return More{};
        if (state_ == State::extended) {
            TRY_VOID(take_extended());
            skip_padding(extended_size_, State::header);
            held_.clear();
            continue;
        }
        Item item = TRY(take_header());
        held_.clear();
        if (!std::holds_alternative<More>(item)) return item;
    }
    return End{};
}

// More: the block was no entry of its own.
Result<Reader::Item> Reader::take_header()
{
    const std::string_view block = held_;
    if (std::ranges::all_of(block, [](char c) { return c == '\0'; })) {
        if (extended_count_ > 0) return damaged("an extended header without its entry");
        if (zero_block_) state_ = State::ended;
        zero_block_ = true;
        return state_ == State::ended ? Item(End{}) : Item(More{});
    }
    if (zero_block_) return damaged("an entry behind its end");
    std::int64_t sum = 0;
    if (!parse_number(field(block, kSum), sum) || sum != std::int64_t{checksum(block)})
        return damaged("a header's checksum does not match: not a tar archive, or compressed");
    const std::string_view magic = field(block, kMagic);
    if (magic != kPosixMagic && magic != kGnuMagic) return damaged("not ustar, pax or GNU tar");
    std::int64_t size = 0;
    if (!parse_number(field(block, kSize), size) || size < 0) return damaged("a size");
    const char type = block[kTypeAt];
    if (type == 'x' || type == 'g' || type == 'L' || type == 'K')
        return begin_extended(type, static_cast<std::uint64_t>(size));
    if (!has_size_) size_ = static_cast<std::uint64_t>(size);
    Entry entry = TRY(finish_entry(block, type));
    TRY_VOID(tally_.add(entry, limits_));
    size_ = entry.size;
    left_ = entry.size;
    state_ = State::content;
    name_.clear();
    target_.clear();
    has_size_ = has_mtime_ = false;
    extended_count_ = 0;
    return entry;
}

Result<Reader::Item> Reader::begin_extended(char type, std::uint64_t size)
{
    if (size > kMostExtended)
        return fail(Code::resource_exhausted, "an extended header of the archive is over 32 KiB");
    if (++extended_count_ > kMostExtendedHeaders) return damaged("too many extended headers");
    extended_ = type == 'x'   ? Extended::pax
                : type == 'g' ? Extended::global
                : type == 'L' ? Extended::gnu_name
                              : Extended::gnu_target;
    extended_size_ = static_cast<std::size_t>(size);
    state_ = State::extended;
    return More{};
}

Status Reader::take_extended()
{
    if (extended_ == Extended::pax || extended_ == Extended::global) return take_pax(held_);
    std::string_view value = held_;
    value = value.substr(0, std::min(value.find('\0'), value.size()));
    (extended_ == Extended::gnu_name ? name_ : target_) = value;
    return {};
}

Status Reader::take_pax(std::string_view records)
{
    while (!records.empty()) {
        const std::size_t space = records.find(' ');
        std::size_t length = 0;
        if (space == std::string_view::npos || !parse_decimal(records.substr(0, space), length) ||
            length > records.size() || length < space + 3 || records[length - 1] != '\n')
            return damaged("a pax record");
        const std::string_view record = records.substr(space + 1, length - space - 2);
        records.remove_prefix(length);
        const std::size_t equals = record.find('=');
        if (equals == std::string_view::npos || equals == 0) return damaged("a pax record");
        const std::string_view key = record.substr(0, equals);
        std::string_view value = record.substr(equals + 1);
        if (key.starts_with("GNU.sparse."))
            return fail(Code::invalid_argument, "the archive holds sparse files: write it without");
        const bool names = key == "path" || key == "linkpath" || key == "size";
        if (names && (extended_ == Extended::global || value.empty()))
            return damaged("a pax record that no entry can have");
        if (key == "path") name_ = value;
        if (key == "linkpath") target_ = value;
        if (key == "size") {
            if (!parse_decimal(value, size_)) return damaged("a pax size");
            has_size_ = true;
        }
        if (key == "mtime" && extended_ == Extended::pax) {
            const std::size_t point = std::min(value.find('.'), value.size());
            if (!parse_decimal(value.substr(0, point), mtime_)) return damaged("a pax time");
            has_mtime_ = true;
        }
    }
    return {};
}

Result<Entry> Reader::finish_entry(std::string_view block, char type)
{
    Entry entry;
    std::string name(text(block, kName));
    if (field(block, kMagic) == kPosixMagic && !text(block, kPrefix).empty())
        name = std::string(text(block, kPrefix)) + "/" + name;
    if (!name_.empty()) name = name_;
    const bool folder_name = name.ends_with('/');
    entry.name = TRY(clean_name(name, limits_.depth));
    entry.target = target_.empty() ? std::string(text(block, kTarget)) : target_;
    entry.size = size_;
    std::int64_t mode = 0;
    if (!parse_number(field(block, kMode), mode) || !parse_number(field(block, kTime), entry.mtime))
        return damaged("a mode or time");
    if (has_mtime_) entry.mtime = mtime_;
    entry.mode = static_cast<std::uint32_t>(mode) & kPermissionBits;
    switch (type) {
    case '0':
    case '\0':
    case '7': entry.kind = folder_name ? Kind::directory : Kind::file; break;
    case '1': entry.kind = Kind::hardlink; break;
    case '2': entry.kind = Kind::symlink; break;
    case '5': entry.kind = Kind::directory; break;
    case '3':
    case '4':
    case '6':
        return fail(Code::invalid_argument,
                    "a device or FIFO in the archive is not copied: " + entry.name);
    default: return fail(Code::invalid_argument, "an unknown kind of entry: " + entry.name);
    }
    if (entry.kind != Kind::file && entry.size != 0) return damaged("content where there is none");
    const bool links = entry.kind == Kind::symlink || entry.kind == Kind::hardlink;
    if (!links) entry.target.clear();
    if (links && (entry.target.empty() || entry.target.size() > kMostName ||
                  entry.target.find('\0') != std::string::npos))
        return damaged("the target of a link");
    if (entry.kind == Kind::hardlink) entry.target = TRY(clean_name(entry.target, limits_.depth));
    if (entry.name == "." && entry.kind != Kind::directory)
        return fail(Code::invalid_argument, "the archive's root is no folder");
    return entry;
}

}  // namespace sandbox::tar
