// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "fuzz.hpp"
#include "ledger/ledger.hpp"

// Any bytes as ledger.db or as its WAL: an error of a closed set, or rows that were once committed.
// Where the full check passes, what is read is a state that was once acknowledged, whole.
// Input: what is replaced or damaged, then the bytes or the edits.
namespace sandbox::fuzz {

namespace {

using ledger::Ledger;
using ledger::OpenMode;

struct State {
    std::vector<ledger::Sandbox> sandboxes;
    std::vector<ledger::Entry> entries;
    ledger::AuditHead head;
    bool operator==(const State&) const = default;
};

Result<State> read_state(Ledger& ledger)
{
    State state;
    state.sandboxes = TRY(ledger.list(ledger::ListScope::all));
    for (const ledger::Sandbox& one : state.sandboxes) {
        for (ledger::Entry& entry : TRY(ledger.entries(one.id))) state.entries.push_back(entry);
    }
    state.head = TRY(ledger.audit_head());
    return state;
}

class Folder {
public:
    Folder()
    {
        // Where a run that is killed leaves it for whoever started the run to remove.
        const char* place = std::getenv("TMPDIR");
        std::string pattern = std::string(place != nullptr ? place : "/tmp") +
                              "/sandbox-fuzz-ledger-XXXXXX";
        HOLDS(mkdtemp(pattern.data()) != nullptr);
        path_ = pattern;
    }
    ~Folder()
    {
        clear();
        rmdir(path_.c_str());
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;

    void clear() const
    {
        for (const char* name : kNames) unlink((path_ + "/" + name).c_str());
    }
    void write(const char* name, std::string_view bytes) const
    {
        const int fd = open((path_ + "/" + name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                            0600);
        HOLDS(fd >= 0);
        HOLDS(::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
        close(fd);
    }
    std::string read(const char* name) const
    {
        std::ifstream file(path_ + "/" + name, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    }
    HostPath path() const { return HostPath(path_); }

    static constexpr const char* kDb = "ledger.db";
    static constexpr const char* kWal = "ledger.db-wal";

private:
    static constexpr std::array kNames{kDb, kWal, "ledger.db-shm", "ledger.db-journal"};
    std::string path_;
};

// A ledger of three commits in its file and three more in its WAL.
struct Sample {
    Folder folder;
    std::string db;
    std::string wal;
    std::vector<State> states;  // of the file, then after each commit of the WAL

    Sample()
    {
        auto ledger = Ledger::open(folder.path(), OpenMode::create);
        HOLDS(ledger.has_value());
        for (unsigned i = 1; i <= 6; ++i) {
            HOLDS(commit(*ledger, i).has_value());
            if (i == 3) {
                HOLDS(ledger->compact().has_value());
                db = folder.read(Folder::kDb);
            }
            if (i >= 3) states.push_back(read_state(*ledger).value());
        }
        wal = folder.read(Folder::kWal);
        HOLDS(!wal.empty() && folder.read(Folder::kDb) == db);
    }

private:
    static Status commit(Ledger& ledger, unsigned number)
    {
        ledger::Sandbox one;
        one.id = SandboxId(std::string(31, '0') + static_cast<char>('0' + number));
        one.name = SandboxName("web" + std::to_string(number));
        one.profile = "web";
        one.driver = "oci";
        one.isolation_class = "shared-kernel";
        one.created = {"2026-01-02T03:04:05.678Z", number, "boot"};
        const std::vector<ledger::Intent> intents{{ledger::EntryKind::state_dir, "s"},
                                                  {ledger::EntryKind::run_dir, "r"}};
        auto transaction = TRY(ledger.begin());
        TRY_VOID(transaction.insert(one));
        TRY_VOID(transaction.intend(one.id, intents));
        return transaction.commit();
    }
};

const Sample& sample()
{
    static const Sample one;
    return one;
}

std::string damaged_file(std::string file, Bytes& bytes)
{
    for (int edits = 0; edits < 6 && !bytes.empty() && !file.empty(); ++edits) {
        const std::uint8_t kind = bytes.byte();
        const std::size_t at = bytes.below(file.size());
        switch (kind % 5) {
        case 0: file[at] = static_cast<char>(file[at] ^ bytes.byte()); break;
        case 1: file.resize(at); break;
        case 2:
            std::fill_n(file.begin() + static_cast<std::ptrdiff_t>(at),
                        std::min<std::size_t>(512, file.size() - at), '\0');
            break;
        case 3: file.replace(at, std::min<std::size_t>(8, file.size() - at), bytes.text(8)); break;
        default: file += file.substr(at, 4096); break;
        }
    }
    return file;
}

// What a reader of the journal may be told; `internal` would be a bug of ours.
void check_code(const Error& error)
{
    const Code code = error.code();
    HOLDS(code == Code::corrupt || code == Code::unavailable || code == Code::io ||
          code == Code::resource_exhausted);
}

bool was_committed(const State& state)
{
    for (const ledger::Sandbox& one : state.sandboxes) {
        const auto& all = sample().states.back().sandboxes;
        if (std::ranges::find(all, one) == all.end()) return false;
    }
    for (const ledger::Entry& one : state.entries) {
        const auto& all = sample().states.back().entries;
        if (std::ranges::find(all, one) == all.end()) return false;
    }
    return true;
}

// One page without a table, which a reader may meet while another process makes the ledger.
constexpr std::size_t kFirstPage = 4096;

void check_ledger(OpenMode mode, std::size_t size)
{
    const bool may_be_new = size == 0;
    auto ledger = Ledger::open(sample().folder.path(), mode);
    const bool being_made = mode == OpenMode::read_only && size <= kFirstPage;
    if (!ledger && being_made && ledger.error().code() == Code::not_found) return;
    if (!ledger) return check_code(ledger.error());
    const auto state = read_state(*ledger);
    if (!state) check_code(state.error());
    if (state) HOLDS(was_committed(*state));
    if (const auto open = ledger->open_entries(); !open) check_code(open.error());
    if (const auto claims = ledger->claims(); !claims) check_code(claims.error());
    if (const auto queue = ledger->queued_audit(); !queue) check_code(queue.error());
    if (const auto checked = ledger->check(); !checked) return check_code(checked.error());
    HOLDS(state.has_value());
    const auto& known = sample().states;
    HOLDS(std::ranges::find(known, *state) != known.end() || (may_be_new && *state == State{}));
}

}  // namespace

FUZZ_TARGET_OF(ledger, 1500)
{
    Bytes bytes(input);
    const Sample& whole = sample();
    const std::uint8_t kind = bytes.byte();
    const OpenMode mode = (kind & 4U) == 0 ? OpenMode::read_write : OpenMode::read_only;
    std::string db = whole.db;
    std::string wal = whole.wal;
    switch (kind % 4) {
    case 0:
        db = bytes.rest();
        wal.clear();
        break;
    case 1:
        db = damaged_file(std::move(db), bytes);
        wal.clear();
        break;
    case 2: wal = bytes.rest(); break;
    default: wal = damaged_file(std::move(wal), bytes); break;
    }
    whole.folder.clear();
    whole.folder.write(Folder::kDb, db);
    if (!wal.empty()) whole.folder.write(Folder::kWal, wal);
    check_ledger(mode, db.size());
}

}  // namespace sandbox::fuzz
