// SPDX-License-Identifier: Apache-2.0
#include "ctl/logs.hpp"

#include <unistd.h>

#include "base/terminal.hpp"
#include "ctl/output.hpp"
#include "shim/log_record.hpp"
#include "sys/file.hpp"

namespace sandbox::ctl {

namespace {

// Where one record goes on this invocation's standard streams.
class Printer {
public:
    explicit Printer(const Logs& options) : options_(options) {}

    void show(std::string_view line)
    {
        if (options_.raw_json) {
            print(std::string(line) + "\n");
            return;
        }
        const auto record = shim::decode(line);
        if (!record) return say("sandboxctl: a log record does not decode: skipped");
        if (record->stream == shim::Stream::supervisor) {
            return say("sandboxctl: " + std::to_string(record->dropped) +
                       " bytes of older output were dropped");
        }
        if (options_.stream != "both" && options_.stream != shim::to_string(record->stream)) return;
        const bool out = record->stream == shim::Stream::out;
        std::string text = record->log;
        if (!record->partial) text += '\n';
        if (out ? stdout_is_terminal() : stderr_is_terminal()) {
            // A record may end inside a character; the next one of its stream goes on.
            text = (out ? out_ : err_).feed(text);
        }
        static_cast<void>(sys::write_all(out ? STDOUT_FILENO : STDERR_FILENO, text));
    }

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

Status show_logs(supervisor::SandboxService& service, const Logs& options)
{
    Printer printer(options);
    const Status shown = service.logs({options.name, options.follow}, [&](std::string_view record) {
        printer.show(record);
        return true;
    });
    printer.finish();
    return shown;
}

}  // namespace sandbox::ctl
