// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

// Programs of a few instructions, as complete static ELF files: a check that runs one depends on
// nothing installed. Empty on an architecture we have no code for.
namespace sandbox::probe {

inline constexpr int kTinyExitStatus = 42;
std::string tiny_exit_program();  // exits with kTinyExitStatus

inline constexpr char kTinyByte = 'D';
std::string tiny_speaking_program();  // writes kTinyByte to descriptor 3, exits with 0

}  // namespace sandbox::probe
