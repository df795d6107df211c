// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include <unistd.h>

#include <array>
#include <charconv>
#include <string_view>

namespace sandbox::bench {

namespace {

// Programs lie beside this one in build/bin.
std::string own_folder()
{
    std::array<char, 4096> link{};  // PATH_MAX
    const ssize_t length = readlink("/proc/self/exe", link.data(), link.size());
    const std::string_view path(link.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
    return std::string(path.substr(0, path.rfind('/')));
}

Result<int> number(std::string_view option, std::string_view text, int least)
{
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < least)
        return fail(Code::invalid_argument, std::string(option) + " wants a number of at least " +
                                                std::to_string(least) + ", found '" +
                                                std::string(text) + "'");
    return value;
}

}  // namespace

std::string usage()
{
    return "usage: sandbox-bench [--runs N] [--warm-up N] [--spacing MS] [--no-podman] [--json]\n"
           "                     [--calm] [--part NAME]... [--bin DIR] [--work DIR]\n"
           "Measures 'sandboxctl run' of /bin/true beside bare crun, runc, bwrap and podman, each up\n"
           "to the moment its exit status is known. Needs root and a quiet machine.\n"
           "  --runs N      of each command, after warm-up (50)\n"
           "  --spacing MS  between runs of the spaced part (200)\n"
           "  --bin DIR     where sandboxctl, sandbox-shim and sandbox-init are (this program's folder)\n"
           "  --work DIR    disk for the temporary --root (/var/tmp)\n"
           "  --calm        before each run wait until no other process wants a CPU (30 s at most)\n"
           "  --part NAME   only this of run, exec, launch, inside\n"
           "  --json        figures as JSON on stdout, and no table\n";
}

Result<Options> parse_options(int argc, char** argv)
{
    Options options;
    options.bin = own_folder();
    std::set<std::string> chosen;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == "--help" || word == "-h")
            options.help = true;
        else if (word == "--json")
            options.json = true;
        else if (word == "--no-podman")
            options.podman = false;
        else if (word == "--calm")
            options.calm = true;
        else if (i + 1 == argc)
            return fail(Code::invalid_argument,
                        "unknown option, or one without its value: " + std::string(word));
        else if (word == "--runs")
            options.runs = TRY(number(word, argv[++i], 1));
        else if (word == "--warm-up")
            options.warm_up = TRY(number(word, argv[++i], 0));
        else if (word == "--spacing")
            options.spacing_ms = TRY(number(word, argv[++i], 0));
        else if (word == "--part")
            chosen.emplace(argv[++i]);
        else if (word == "--bin")
            options.bin = argv[++i];
        else if (word == "--work")
            options.work = argv[++i];
        else
            return fail(Code::invalid_argument, "unknown option " + std::string(word));
    }
    for (const std::string& part : chosen)
        if (!wants(options, part.c_str()))
            return fail(Code::invalid_argument,
                        "--part knows run, exec, launch and inside, not " + part);
    if (!chosen.empty()) options.parts = std::move(chosen);
    return options;
}

}  // namespace sandbox::bench
