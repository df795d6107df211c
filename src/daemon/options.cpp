// SPDX-License-Identifier: Apache-2.0
#include "daemon/options.hpp"

#include <string_view>

namespace sandbox::daemon {

namespace {

constexpr int kUsage = 2;

constexpr std::string_view kHelp =
    "sandboxd: the daemon behind sandboxctl (optional).\n"
    "Usage: sandboxd [OPTIONS]\n\n"
    "Options:\n"
    "  -h,--help                   Print this help message and exit\n"
    "  --root TEXT                 Prefix of every path (/etc/sandbox, /run/sandbox, ...)\n"
    "  --reconcile-interval TEXT   Time between full reconciles, such as 60s (the default)\n"
    "  --routes                    Print the routes of the API as JSON and exit\n"
    "  --version                   Print the version and exit\n\n"
    "SIGTERM ends it when calls at work have ended, SIGHUP looks at the configuration and\n"
    "profiles.d again. Sandboxes go on whatever becomes of the daemon.\n";

Answer wrong(const std::string& what)
{
    return {"sandboxd: " + what + "\nRun 'sandboxd --help'.", kUsage};
}

}  // namespace

// The first thing that is wrong is told; help wins over what stands behind it.
std::variant<Options, Answer> parse_options(int argc, const char* const* argv)
{
    Options options;
    for (int i = 1; i < argc; ++i) {
        std::string word = argv[i];
        std::string value;
        const std::size_t equals = word.find('=');
        const bool given = word.starts_with("--") && equals != std::string::npos;
        if (given) {
            value = word.substr(equals + 1);
            word.resize(equals);
        }
        // "--root X" and "--root=X".
        const bool wants_value = word == "--root" || word == "--reconcile-interval";
        if (given && !wants_value) return wrong(word + " takes no value");
        if (wants_value && !given) {
            if (++i == argc) return wrong(word + " wants a value");
            value = argv[i];
        }
        if (word == "-h" || word == "--help") return Answer{std::string(kHelp), 0};
        if (word == "--version") return Answer{"sandboxd " SANDBOX_VERSION "\n", 0};
        if (word == "--routes") {
            options.print_routes = true;
        } else if (word == "--root") {
            options.root = value;
        } else if (word == "--reconcile-interval") {
            const auto span = parse_duration(value);
            // Less would leave the host no rest between two passes.
            if (!span || span->count() < 1000) {
                return wrong("--reconcile-interval wants a duration of at least 1s");
            }
            options.reconcile_interval = *span;
        } else {
            return wrong("nothing here is called '" + word + "'");
        }
    }
    return options;
}

}  // namespace sandbox::daemon
