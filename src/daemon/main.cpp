// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "daemon/daemon.hpp"
#include "sys/file.hpp"

int main(int argc, char** argv)
{
    using namespace sandbox;
    // By hand and not with CLI11: the daemon has four options, and one library less runs as root.
    const auto parsed = daemon::parse_options(argc, argv);
    if (const auto* answer = std::get_if<daemon::Answer>(&parsed)) {
        const int fd = answer->status == 0 ? STDOUT_FILENO : STDERR_FILENO;
        const bool told =
            sys::write_all(fd, answer->text + (answer->status == 0 ? "" : "\n")).has_value();
        // `--version > full-disk` must not say that all is well.
        return answer->status == 0 && !told ? 1 : answer->status;
    }
    const auto& options = std::get<daemon::Options>(parsed);
    if (options.print_routes) {
        return sys::write_all(STDOUT_FILENO, daemon::describe_routes()).has_value() ? 0 : 1;
    }
    const daemon::Log log;
    const auto served = daemon::serve(options, log);
    if (served) return 0;
    // Already in the log's form; main has nothing to add.
    log.write(daemon::kError, served.error().message());
    return 1;
}
