// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// One source, two programs: with SANDBOX_FUZZ_REPLAY the targets register with the replay program
// (gcc, every build, dev/test); without it each is a libFuzzer program (clang, dev/fuzz).
namespace sandbox::fuzz {

// Says which oracle does not hold. Ends the process under libFuzzer; throws in the replay.
[[noreturn]] void broken(const char* file, int line, const char* what);

using Run = void (*)(std::string_view input);

struct Target {
    std::string_view name;
    Run run;
    // Mutated inputs the replay tries. The one size does not fit a target that writes files.
    std::size_t mutations;
};

// Registers with the replay.
struct Registration {
    Registration(std::string_view name, Run run, std::size_t mutations);
};

inline constexpr std::size_t kMutations = 10'000;

// Takes values off the front of an input; zeros once it has run out.
class Bytes {
public:
    explicit Bytes(std::string_view bytes) : rest_(bytes) {}

    bool empty() const noexcept { return rest_.empty(); }
    std::string_view rest() const noexcept { return rest_; }
    std::uint8_t byte()
    {
        if (rest_.empty()) return 0;
        const char front = rest_.front();
        rest_.remove_prefix(1);
        return static_cast<std::uint8_t>(front);
    }
    std::size_t below(std::size_t limit) { return limit == 0 ? 0 : word() % limit; }
    std::uint32_t word()
    {
        std::uint32_t value = 0;
        for (int i = 0; i < 4; ++i) value = value << 8 | byte();
        return value;
    }
    std::string_view text(std::size_t most)
    {
        const std::size_t size = std::min<std::size_t>(byte(), most);
        const std::string_view taken = rest_.substr(0, size);
        rest_.remove_prefix(taken.size());
        return taken;
    }

private:
    std::string_view rest_;
};

inline std::span<const std::byte> as_bytes(std::string_view text)
{
    return std::as_bytes(std::span(text.data(), text.size()));
}

// Bytes asked of operator new since the program began.
std::size_t allocated() noexcept;

// Holds no control character, DEL, C1, BiDi or zero-width control, and is UTF-8. Written apart
// from the code under test on purpose. `also` names control characters that may stand.
bool is_safe_text(std::string_view text, std::string_view also);

}  // namespace sandbox::fuzz

#define HOLDS(condition)                                                           \
    do {                                                                           \
        if (!(condition)) ::sandbox::fuzz::broken(__FILE__, __LINE__, #condition); \
    } while (false)

#ifdef SANDBOX_FUZZ_REPLAY
#define FUZZ_TARGET_OF(name, mutations)                                                         \
    static void run_##name(std::string_view input);                                             \
    static const ::sandbox::fuzz::Registration registered_##name(#name, run_##name, mutations); \
    static void run_##name(std::string_view input)
#else
#define FUZZ_TARGET_OF(name, mutations)                                               \
    static void run_##name(std::string_view input);                                   \
    extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) \
    {                                                                                 \
        run_##name({reinterpret_cast<const char*>(data), size});                      \
        return 0;                                                                     \
    }                                                                                 \
    static void run_##name(std::string_view input)
#endif
#define FUZZ_TARGET(name) FUZZ_TARGET_OF(name, ::sandbox::fuzz::kMutations)
