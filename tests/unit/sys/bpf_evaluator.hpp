// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace sandbox::testing {

struct Evaluation {
    std::uint32_t action = 0;
    int steps = 0;
};

// Runs a classic BPF program on one seccomp_data, as kernel/seccomp.c allows it: absolute 32-bit
// loads, ALU with constants, jumps. Nothing for a program the kernel would refuse.
inline std::optional<Evaluation> evaluate(std::span<const sock_filter> program,
                                          const seccomp_data& data)
{
    std::uint32_t accumulator = 0;
    Evaluation result;
    for (std::size_t at = 0; at < program.size(); ++at) {
        const sock_filter& step = program[at];
        ++result.steps;
        switch (step.code) {
        case BPF_LD | BPF_W | BPF_ABS:
            if (step.k % 4 != 0 || step.k + 4 > sizeof data) return std::nullopt;
            std::memcpy(&accumulator, reinterpret_cast<const char*>(&data) + step.k, 4);
            break;
        case BPF_ALU | BPF_AND | BPF_K: accumulator &= step.k; break;
        case BPF_JMP | BPF_JA: at += step.k; break;
        case BPF_JMP | BPF_JEQ | BPF_K: at += accumulator == step.k ? step.jt : step.jf; break;
        case BPF_JMP | BPF_JGE | BPF_K: at += accumulator >= step.k ? step.jt : step.jf; break;
        case BPF_JMP | BPF_JGT | BPF_K: at += accumulator > step.k ? step.jt : step.jf; break;
        case BPF_JMP | BPF_JSET | BPF_K:
            at += (accumulator & step.k) != 0 ? step.jt : step.jf;
            break;
        case BPF_RET | BPF_K: result.action = step.k; return result;
        default: return std::nullopt;
        }
    }
    return std::nullopt;  // ran off the end
}

}  // namespace sandbox::testing
