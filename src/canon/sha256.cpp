// SPDX-License-Identifier: Apache-2.0
#include <new>

// The one-shot SHA256() and EVP load providers on first use (1.2 ms); these three calls do not.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include "canon/canon.hpp"

namespace sandbox::canon {

namespace {

SHA256_CTX* context(std::array<std::byte, 128>& state)
{
    static_assert(sizeof(SHA256_CTX) <= 128 && alignof(SHA256_CTX) <= 16);
    return std::launder(reinterpret_cast<SHA256_CTX*>(state.data()));
}

}  // namespace

Sha256::Sha256() { SHA256_Init(new (state_.data()) SHA256_CTX); }

Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes)
{
    SHA256_Update(context(state_), bytes.data(), bytes.size());
}

void Sha256::update(std::string_view text)
{
    SHA256_Update(context(state_), text.data(), text.size());
}

std::array<std::uint8_t, 32> Sha256::finish()
{
    std::array<std::uint8_t, 32> hash{};
    SHA256_Final(hash.data(), context(state_));
    return hash;
}

std::string hex(std::span<const std::uint8_t> bytes)
{
    static constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    text.reserve(bytes.size() * 2);
    for (const std::uint8_t byte : bytes) {
        text += kDigits[byte >> 4];
        text += kDigits[byte & 15U];
    }
    return text;
}

std::string to_digest(const std::array<std::uint8_t, 32>& hash) { return "sha256:" + hex(hash); }

std::string digest(std::string_view bytes)
{
    Sha256 sha;
    sha.update(bytes);
    return to_digest(sha.finish());
}

bool is_digest(std::string_view text) noexcept
{
    constexpr std::string_view kPrefix = "sha256:";
    return text.size() == kPrefix.size() + 64 && text.starts_with(kPrefix) &&
           text.find_first_not_of("0123456789abcdef", kPrefix.size()) == std::string_view::npos;
}

}  // namespace sandbox::canon
