// SPDX-License-Identifier: Apache-2.0
#include "ctl/logs.hpp"

#include <unistd.h>

#include <ctime>

#include "base/terminal.hpp"
#include "ctl/filters.hpp"
#include "ctl/output.hpp"
#include "shim/log_record.hpp"
#include "sys/file.hpp"

namespace sandbox::ctl {

namespace {

// Where one record goes on this invocation's standard streams. A text that a terminal reads is what
// a hostile workload has written: escape sequences are taken out there. Into a file or pipe go the
// bytes.
class Printer {
public:
    explicit Printer(const Logs& options) : options_(options) {}

    void show(std::string_view line)
    {
        if (options_.raw_json) {
            // As stored: the caller wants the format, docs/formats.
            print(std::string(line) + "\n");
            return;
        }
        const auto record = shim::decode(line);
        // Said and skipped: one bad line must not hide the rest.
        if (!record) return say("sandboxctl: a log record does not decode: skipped");
        if (record->stream == shim::Stream::supervisor) {
            return say("sandboxctl: " + std::to_string(record->dropped) +
                       " bytes of older output were dropped");
        }
        if (options_.stream != "both" && options_.stream != shim::to_string(record->stream)) return;
        const bool out = record->stream == shim::Stream::out;
        std::string text = record->log;
        // A record without its line end is a part of a longer line.
        if (!record->partial) text += '\n';
        if (out ? stdout_is_terminal() : stderr_is_terminal()) {
            // A record may end inside a character; the next one of its stream goes on.
            text = (out ? out_ : err_).feed(text);
        }
        // A reader that went away: there is nobody to tell.
        static_cast<void>(sys::write_all(out ? STDOUT_FILENO : STDERR_FILENO, text));
    }

    // What the sanitisers hold back: half a character at the end.
    void finish()
    {
        if (stdout_is_terminal()) static_cast<void>(sys::write_all(STDOUT_FILENO, out_.finish()));
        if (stderr_is_terminal()) static_cast<void>(sys::write_all(STDERR_FILENO, err_.finish()));
    }

private:
    const Logs& options_;
    TerminalSanitiser out_;
    TerminalSanitiser err_;
};

}  // namespace

namespace {

struct Seen {
    std::string time;
    bool ends_line = true;
    bool wanted = true;  // its stream is asked for, and it is recent enough
};

Seen look_at(std::string_view line, const Logs& options, const std::string& since)
{
    const auto record = shim::decode(line);
    if (!record) return {};  // shown, and complained about
    const bool marker = record->stream == shim::Stream::supervisor;
    Seen seen{record->time, !record->partial, true};
    // Markers of dropped output belong to both.
    if (!marker && options.stream != "both") {
        seen.wanted = options.stream == shim::to_string(record->stream);
    }
    // Compared as text: both are UTC in one form.
    seen.wanted = seen.wanted && record->time >= since;
    return seen;
}

// What is there first, the last lines of it; then, with follow, what the first reading had not.
Status show_tail(supervisor::SandboxService& service, const Logs& options, const std::string& since,
                 Printer& printer)
{
    Tail tail(*options.tail);
    std::string last;
    std::string last_time;
    TRY_VOID(service.logs({options.name, false}, [&](std::string_view line) {
        const Seen seen = look_at(line, options, since);
        // Also of records that are not wanted: the second reading starts behind the last, whichever
        // it was.
        last = line;
        last_time = seen.time;
        if (seen.wanted) tail.add(std::string(line), seen.ends_line);
        return true;
    }));
    for (const std::string& line : tail.take()) printer.show(line);
    if (!options.follow) return {};
    // From its beginning again: `follow` has no position, and the log may have been rotated.
    CatchUp catch_up(last, last_time);
    return service.logs({options.name, true}, [&](std::string_view line) {
        const Seen seen = look_at(line, options, since);
        if (catch_up.is_new(line, seen.time) && seen.wanted) printer.show(line);
        return true;
    });
}

}  // namespace

Status show_logs(supervisor::SandboxService& service, const Logs& options)
{
    Printer printer(options);
    std::string since;
    // "10m" is counted from now, once.
    if (!options.since.empty()) since = TRY(parse_since(options.since, time(nullptr)));
    Status shown;
    if (options.tail) {
        shown = show_tail(service, options, since, printer);
    } else {
        shown = service.logs({options.name, options.follow}, [&](std::string_view record) {
            if (since.empty() || look_at(record, options, since).wanted) printer.show(record);
            return true;
        });
    }
    printer.finish();
    return shown;
}

}  // namespace sandbox::ctl
