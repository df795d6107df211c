// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

// Declares only: who touches a value includes "canon/json.hpp" (it is slow to compile).
#include <nlohmann/json_fwd.hpp>

#include "base/result.hpp"

namespace sandbox::canon {

// Keys sorted, as RFC 8785 wants; every value of ours is a string, integer, bool, array or object.
using Json = nlohmann::json;

// Ceilings for JSON that came from outside (files a person edits, sockets, saved snapshots).
struct Limits {
    std::size_t bytes = 4U << 20;
    std::size_t depth = 64;
};

// Strict: duplicate keys, floats, trailing bytes, bad UTF-8, depth and size over the limits are
// Code::corrupt with the byte offset.
[[nodiscard]] Result<Json> parse(std::string_view text, Limits limits = {});

// RFC 8785 bytes. Fails on floats, on integers beyond 2^53-1 in magnitude (I-JSON) and on strings
// that are not UTF-8.
[[nodiscard]] Result<std::string> serialize(const Json& value);

// Incremental SHA-256 (libcrypto; FIPS 180-4).
class Sha256 {
public:
    Sha256();
    ~Sha256();
    Sha256(const Sha256&) = delete;
    Sha256& operator=(const Sha256&) = delete;
    void update(std::span<const std::byte> bytes);
    void update(std::string_view text);
    std::array<std::uint8_t, 32> finish();

private:
    alignas(16) std::array<std::byte, 128> state_{};  // a SHA256_CTX, kept out of this header
};

// "sha256:" and 64 lower-case hex digits.
std::string digest(std::string_view bytes);
std::string to_digest(const std::array<std::uint8_t, 32>& hash);
bool is_digest(std::string_view text) noexcept;

// Lower-case hex of any bytes.
std::string hex(std::span<const std::uint8_t> bytes);

}  // namespace sandbox::canon
