// SPDX-License-Identifier: Apache-2.0
#include "control/operations.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "canon/json.hpp"
#include "control/fields.hpp"
#include "ledger/ledger.hpp"
#include "supervisor/context.hpp"
#include "sys/file.hpp"

namespace sandbox::control {

namespace {

// Below STATE; files are named by the hash of the operation id.
constexpr const char* kFolder = "operations";
constexpr std::size_t kMostRecordBytes = 32U << 20;
constexpr std::size_t kKept = 1000;  // as many as the ledger keeps removed sandboxes

struct Record {
    std::string request_digest;
    sys::ProcessIdentity holder;
    bool done = false;
    int status = 0;
    std::string type;
    std::string body;
};

std::string encode_record(const Record& record)
{
    const canon::Json json{{"request", record.request_digest},
                           {"holder", ledger::encode(record.holder)},
                           {"done", record.done},
                           {"status", record.status},
                           {"type", record.type},
                           {"body", record.body}};
    // An answer may quote bytes that are no UTF-8: replaced, as in the answer itself.
    return json.dump(-1, ' ', false, canon::Json::error_handler_t::replace) + "\n";
}

Result<Record> decode_record(std::string_view text)
{
    const canon::Json json = TRY(canon::parse(text, {.bytes = kMostRecordBytes, .depth = 8}));
    Fields fields(json, "operation record");
    Record record;
    record.request_digest = fields.text("request").value_or("");
    record.holder = TRY(ledger::decode_process(fields.text("holder").value_or("")));
    record.done = fields.boolean("done").value_or(false);
    record.status = static_cast<int>(fields.integer("status", 0, 599).value_or(0));
    record.type = fields.text("type").value_or("");
    record.body = fields.text("body").value_or("");
    TRY_VOID(fields.finish());
    return record;
}

// Passes an answer on and keeps a copy. Nothing is passed on before the copy is durable: a client
// that was told may rely on being told the same again.
class Recorder final : public AnswerSink {
public:
    Recorder(AnswerSink& next, Record& record) : next_(next), record_(record) {}
    void begin(int status, std::string_view type, Form form) override
    {
        record_.status = status;
        record_.type = type;
        form_ = form;
    }
    bool body(std::string_view bytes) override
    {
        record_.body += bytes;
        return true;
    }
    // Told only after it is on the disk.
    void tell()
    {
        next_.begin(record_.status, record_.type, form_);
        next_.body(record_.body);
    }

private:
    AnswerSink& next_;
    Record& record_;
    Form form_ = Form::whole;
};

// The oldest go first; failing to forget one harms nothing.
void forget_old(int dir)
{
    const auto names = sys::list_dir(dir);
    // Only beyond the limit: most calls list and leave.
    if (!names || names->size() <= kKept) return;
    std::vector<std::pair<std::int64_t, std::string>> aged;
    for (const std::string& name : *names) {
        struct stat info{};
        if (fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
            aged.emplace_back(info.st_mtim.tv_sec, name);
        }
    }
    std::sort(aged.begin(), aged.end());
    for (std::size_t i = 0; i + kKept < aged.size(); ++i) {
        static_cast<void>(sys::unlink_at(dir, aged[i].second));
    }
}

// Nothing: this try is to go on, as `record` says. Else the answer of an earlier one.
Result<std::optional<Record>> begin(int dir, const std::string& name, Call& call, Record& record)
{
    // O_EXCL decides which of two tries at once is the first.
    const Status made = sys::write_file_at(dir, name, encode_record(record), 0600);
    if (made) return std::nullopt;
    if (made.error().code() != Code::already_exists) return fail(made.error());
    const std::string text = TRY(sys::read_file_at(dir, name, kMostRecordBytes));
    // A record that does not decode was cut short in its first write: this try takes its place.
    auto earlier = decode_record(text);
    if (earlier && earlier->request_digest != call.request_digest) {
        return fail(Code::conflict, "operation " + call.operation_id +
                                        " was another request: every request has an id of its own");
    }
    if (earlier && earlier->done) return std::move(*earlier);
    // By identity: a pid that was given anew is not the earlier try.
    if (earlier && supervisor::is_alive(earlier->holder)) {
        return fail(Code::conflict, "operation " + call.operation_id + " is still at work");
    }
    // Cut short, maybe inside its first write.
    call.repeated = true;
    TRY_VOID(sys::replace_file_at(dir, name, encode_record(record), 0600));
    return std::nullopt;
}

Status perform_recorded(Call call, const std::string& state_dir, const Work& work, AnswerSink& sink)
{
    const std::string folder = state_dir + "/" + kFolder;
    TRY_VOID(sys::make_dirs(folder));
    const sys::UniqueFd dir = TRY(sys::open_dir(folder));
    const std::string hash = canon::digest(call.operation_id);
    // A hash, because the id is the client's and may hold anything.
    const std::string name = hash.substr(hash.find(':') + 1) + ".json";
    Record record;
    record.request_digest = call.request_digest;
    record.holder = TRY(sys::identity_of(getpid()));
    if (const auto earlier = TRY(begin(dir.get(), name, call, record))) {
        sink.begin(earlier->status, earlier->type, AnswerSink::Form::whole);
        sink.body(earlier->body);
        return {};
    }
    Recorder recorder(sink, record);
    work(call, recorder);
    record.done = true;
    TRY_VOID(sys::replace_file_at(dir.get(), name, encode_record(record), 0600));
    recorder.tell();
    // After the answer: nobody waits for it.
    forget_old(dir.get());
    return {};
}

}  // namespace

void perform_once(const Call& call, const std::string& state_dir, const Work& work,
                  AnswerSink& sink)
{
    if (call.operation_id.empty()) return work(call, sink);
    const Status done = perform_recorded(call, state_dir, work, sink);
    if (!done) answer_fault(fault_of(done.error()), sink);
}

}  // namespace sandbox::control
