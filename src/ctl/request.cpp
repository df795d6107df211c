// SPDX-License-Identifier: Apache-2.0
#include "ctl/request.hpp"

#include <array>
#include <charconv>
#include <csignal>
#include <cstring>

#include "canon/json.hpp"
#include "ctl/output.hpp"
#include "supervisor/host.hpp"

namespace sandbox::ctl {

Result<supervisor::Adjustments> adjustments(const supervisor::Paths& paths,
                                            const std::vector<std::string>& argv,
                                            const std::vector<std::string>& env,
                                            const std::string& overlay)
{
    supervisor::Adjustments result;
    result.argv = argv;
    // The last one stands, as a shell's assignment does.
    for (const std::string& pair : env) {
        const std::size_t equals = pair.find('=');
        if (equals == std::string::npos || equals == 0) {
            return fail(Code::invalid_argument, "-e wants NAME=VALUE, found '" + pair + "'");
        }
        result.env[pair.substr(0, equals)] = pair.substr(equals + 1);
    }
    if (!overlay.empty()) {
        // A bare word is a file here, never a profile by name: read_profile() would look into
        // profiles.d.
        const std::string path = overlay.find('/') == std::string::npos ? "./" + overlay : overlay;
        result.overlay = TRY_WITH(supervisor::read_profile(paths, path), "overlay");
    }
    return result;
}

std::optional<Millis> parse_timeout(const std::string& text)
{
    const bool plain = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
    return parse_duration(plain ? text + "s" : text);
}

Result<int> parse_signal(const std::string& text)
{
    int number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc{} && end == text.data() + text.size()) {
        // 64 at most, signal(7); 0 would only ask whether the process is there.
        if (number >= 1 && number <= SIGRTMAX) return number;
        return fail(Code::invalid_argument, "no signal has the number " + text);
    }
    std::string name = text;
    // Signal names are ASCII; in other letters nothing is meant.
    for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (name.starts_with("SIG")) name.erase(0, 3);
    for (int signal = 1; signal < NSIG; ++signal) {
        const char* known = sigabbrev_np(signal);
        if (known != nullptr && name == known) return signal;
    }
    return fail(Code::invalid_argument, "no signal is called '" + text + "'");
}

int say_refused(const supervisor::PlanOutcome& outcome, bool as_json, int refused)
{
    if (const auto* errors = std::get_if<supervisor::ProfileErrors>(&outcome)) {
        complain(errors->diagnostics);
    } else if (const auto* denials = std::get_if<std::vector<resolve::Denial>>(&outcome)) {
        // A denial is data for who asked for JSON; in a table run it is talk.
        if (as_json)
            print(resolve::to_json(*denials), Format::json);
        else
            say(resolve::render(*denials));
    }
    return refused;
}

}  // namespace sandbox::ctl
