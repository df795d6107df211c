// SPDX-License-Identifier: Apache-2.0
#include "guest/argv_digest.hpp"

#include <bit>
#include <cstddef>
#include <cstring>

namespace sandbox::guest {
namespace {

// FIPS 180-4, 4.2.2: fractional parts of the cube roots of the first 64 primes.
constexpr std::uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// Written down from the standard, in the fewest lines: it hashes a command line a session, and
// speed does not matter.
class Sha256 {
public:
    void add(std::uint8_t byte) noexcept
    {
        block_[total_++ % sizeof block_] = byte;
        if (total_ % sizeof block_ == 0) mix();
    }

    wire::Digest finish() noexcept
    {
        // Before padding, which counts as well.
        const std::uint64_t bits = total_ * 8;
        // FIPS 180-4, 5.1.1: one bit, zeros, and the length of the message as the last 64 bits.
        add(0x80);
        while (total_ % sizeof block_ != sizeof block_ - 8) add(0);
        for (int shift = 56; shift >= 0; shift -= 8) add(static_cast<std::uint8_t>(bits >> shift));
        wire::Digest digest{};
        for (std::size_t i = 0; i < digest.size(); ++i)
            digest[i] = static_cast<std::uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
        return digest;
    }

private:
    // FIPS 180-4, 6.2.2; w is the message schedule, s the working variables a to h.
    void mix() noexcept
    {
        std::uint32_t w[64];
        for (std::size_t i = 0; i < 16; ++i)
            w[i] = static_cast<std::uint32_t>(block_[4 * i]) << 24 |
                   static_cast<std::uint32_t>(block_[4 * i + 1]) << 16 |
                   static_cast<std::uint32_t>(block_[4 * i + 2]) << 8 | block_[4 * i + 3];
        for (std::size_t i = 16; i < 64; ++i) {
            const std::uint32_t a = w[i - 15];
            const std::uint32_t b = w[i - 2];
            w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) + w[i - 7] +
                   (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
        }
        std::uint32_t s[8];
        std::memcpy(s, state_, sizeof s);
        for (std::size_t i = 0; i < 64; ++i) {
            const std::uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
            const std::uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
            const std::uint32_t first = s[7] + choice + kRound[i] + w[i] +
                                        (std::rotr(s[4], 6) ^ std::rotr(s[4], 11) ^
                                         std::rotr(s[4], 25));
            const std::uint32_t second = majority + (std::rotr(s[0], 2) ^ std::rotr(s[0], 13) ^
                                                     std::rotr(s[0], 22));
            for (std::size_t k = 7; k > 0; --k) s[k] = s[k - 1];
            s[4] += first;
            s[0] = first + second;
        }
        for (std::size_t i = 0; i < 8; ++i) state_[i] += s[i];
    }

    // FIPS 180-4, 5.3.3: fractional parts of the square roots of the first 8 primes.
    std::uint32_t state_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::uint8_t block_[64] = {};
    std::uint64_t total_ = 0;
};

}  // namespace

wire::Digest argv_digest(const std::vector<std::string>& argv) noexcept
{
    Sha256 sha;
    for (const std::string& item : argv)
        // With its terminator: {"ab"} and {"a", "b"} are not the same.
        for (std::size_t i = 0; i <= item.size(); ++i)
            sha.add(static_cast<std::uint8_t>(item.c_str()[i]));
    return sha.finish();
}

}  // namespace sandbox::guest
