// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sandbox::shim {

// The last bytes of a stream, each known by its position in it: what nobody took in time falls out
// at the old end, and a reader that names a position learns what it missed. Pure; at most twice the
// capacity is held.
class Ring {
public:
    // Requires: capacity > 0.
    explicit Ring(std::size_t capacity) : capacity_(capacity) {}

    std::uint64_t begin() const noexcept { return end_ - kept(); }  // oldest byte that is here
    std::uint64_t end() const noexcept { return end_; }  // one past the newest
    std::size_t capacity() const noexcept { return capacity_; }

    void append(std::string_view bytes)
    {
        end_ += bytes.size();
        // Of a piece longer than the ring only its end could ever be read.
        if (bytes.size() > capacity_) bytes.remove_prefix(bytes.size() - capacity_);
        bytes_.append(bytes);
        // Moved to the front once per capacity: linear in what passes through.
        if (bytes_.size() >= 2 * capacity_) bytes_.erase(0, bytes_.size() - capacity_);
    }

    // What is here from `position` on. Requires: begin() <= position <= end(). Valid until the next
    // append.
    std::string_view from(std::uint64_t position) const noexcept
    {
        return std::string_view(bytes_).substr(bytes_.size() -
                                               static_cast<std::size_t>(end_ - position));
    }

private:
    std::size_t kept() const noexcept
    {
        return bytes_.size() < capacity_ ? bytes_.size() : capacity_;
    }

    std::size_t capacity_;
    std::string bytes_;
    std::uint64_t end_ = 0;
};

}  // namespace sandbox::shim
