// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/error.hpp"
#include "canon/canon.hpp"
#include "ctl/command_line.hpp"

// Data goes to stdout, talk to stderr. Untrusted text is escaped where a terminal would read it.
// Nothing here fails: output that is lost is remembered.
namespace sandbox::ctl {

void say(std::string_view line);          // stderr, newline added
void complain(const Error& error);        // "sandboxctl: …" on stderr
void complain(const std::vector<Diagnostic>& diagnostics);

// Writes everything or gives up silently when the reader has gone (EPIPE).
void print(std::string_view text);
// Indented JSON, or YAML of the same value. Requires: format is not table.
void print(const canon::Json& value, Format format);

// Columns padded to their widest cell; cells are escaped, so a name from a sandbox cannot steer the
// terminal.
std::string table(const std::vector<std::vector<std::string>>& rows);

// Some output to stdout did not reach its place (a full disk, a reader that went away): the program
// then does not exit with success.
bool output_was_lost() noexcept;

bool stdout_is_terminal();
bool stderr_is_terminal();

}  // namespace sandbox::ctl
