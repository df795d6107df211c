// SPDX-License-Identifier: Apache-2.0
#include "ledger/codec.hpp"

#include <array>
#include <limits>

#include "canon/json.hpp"

namespace sandbox::ledger {

namespace {

// The order of the columns in the file, and of to_row() and the *_from() readers below. All four
// change together, with a schema step.
// clang-format off: a table
constexpr std::array<std::string_view, 22> kSandboxColumns{
    "id",         "name",        "profile",      "driver",         "isolation_class",
    "plan_digest", "plan_path",  "log_path",     "desired",        "state",
    "generation", "created_utc", "created_ns",   "created_boot",   "shim",
    "pid1",       "id_range",    "remove_on_exit", "labels",       "exit",
    "exit_delivered", "request_digest"};
// clang-format on
constexpr std::array<std::string_view, 7> kEntryColumns{"seq",  "sandbox", "generation", "kind",
                                                        "name", "state",   "identity"};
constexpr std::array<std::string_view, 9> kOperationColumns{
    "id", "sandbox", "verb", "request_digest", "holder", "step", "deadline_ns", "state", "result"};
constexpr std::array<std::string_view, 2> kMetaColumns{"key", "value"};
constexpr std::array<std::string_view, 3> kManagedColumns{"sandbox", "origin", "source"};

// Half of a SHA-256 is far more than accidental damage needs, and keeps rows short.
constexpr std::size_t kSumDigits = 16;

// Takes the values of a row in order; the first wrong one makes everything after it wrong too.
class Reader {
public:
    Reader(Table table, const Row& row) : table_(table), row_(row) {}

    std::string text()
    {
        const auto* value = next<std::string>();
        return value != nullptr ? *value : std::string{};
    }

    template <class Integer>
    Integer integer()
    {
        const auto* value = next<std::int64_t>();
        // Wide integers come out of SQLite as 64 signed bits: the range is checked, never wrapped.
        if (value == nullptr || !std::in_range<Integer>(*value)) {
            broken_ = true;
            return 0;
        }
        return static_cast<Integer>(*value);
    }

    template <class Flag>
    Flag flag()
    {
        const auto value = integer<int>();
        broken_ |= value != 0 && value != 1;
        return static_cast<Flag>(value);
    }

    template <class Enum>
    Enum word(std::optional<Enum> (*parse)(std::string_view) noexcept)
    {
        const auto value = parse(text());
        broken_ |= !value.has_value();
        return value.value_or(Enum{});
    }

    // "None" is stored as an empty text, not as NULL: every column is NOT NULL, so a NULL is always
    // damage.
    template <class T>
    std::optional<T> optional(Result<T> (*decode)(std::string_view))
    {
        const std::string stored = text();
        if (stored.empty()) return std::nullopt;
        auto value = decode(stored);
        broken_ |= !value.has_value();
        return value ? std::optional<T>(*std::move(value)) : std::nullopt;
    }

    void require(bool condition) { broken_ |= !condition; }

    template <class T>
    Result<T> done(T value) const
    {
        // Also refuses a row with values left over: it belongs to another schema.
        if (!broken_ && at_ == row_.size()) return value;
        return fail(Code::corrupt, "ledger: a row of table " + std::string(name_of(table_)) +
                                       " does not decode at column " + std::to_string(at_) +
                                       ": the file is damaged, restore it from a copy");
    }

private:
    template <class T>
    const T* next()
    {
        if (broken_ || at_ >= row_.size()) {
            broken_ = true;
            return nullptr;
        }
        const auto* value = std::get_if<T>(&row_[at_++]);
        broken_ |= value == nullptr;
        return value;
    }

    Table table_;
    const Row& row_;
    std::size_t at_ = 0;
    bool broken_ = false;
};

// The counter is a string: canonical JSON has no integers above 2^53 - 1 (RFC 8785 uses IEEE 754
// doubles).
std::string encode_exit(const std::optional<Exit>& exit)
{
    if (!exit) return {};
    return canon::serialize({{"code", exit->code},
                             {"oom_kills", std::to_string(exit->oom_kills)},
                             {"reason", std::string(to_string(exit->reason))},
                             {"signal", exit->signal}})
        .value_or("");
}

Result<Exit> decode_exit(std::string_view text)
{
    // The longest form that encode_exit() writes is far below 1 KiB, and an object of scalars is 2
    // deep.
    const auto json = TRY(canon::parse(text, {.bytes = 1024, .depth = 2}));
    const auto number = [&](const char* key) {
        return json.contains(key) && json[key].is_number_integer();
    };
    const auto string = [&](const char* key) {
        return json.contains(key) && json[key].is_string();
    };
    if (!json.is_object() || json.size() != 4 || !number("code") || !number("signal") ||
        !string("reason") || !string("oom_kills")) {
        return fail(Code::corrupt, "ledger: an exit does not decode");
    }
    const auto reason = parse_exit_reason(json["reason"].get_ref<const std::string&>());
    const auto kills = json["oom_kills"].get<std::string>();
    const auto code = json["code"].get<std::int64_t>();
    const auto signal = json["signal"].get<std::int64_t>();
    // 19 digits always fit 64 bits. 255 is the widest wait status (wait(2)); 64 is Linux's
    // SIGRTMAX.
    if (!reason || kills.empty() || kills.size() > 19 ||
        kills.find_first_not_of("0123456789") != std::string::npos || code < 0 || code > 255 ||
        signal < 0 || signal > 64) {
        return fail(Code::corrupt, "ledger: an exit is out of range");
    }
    return Exit{static_cast<std::int32_t>(code), static_cast<std::int32_t>(signal), *reason,
                std::strtoull(kills.c_str(), nullptr, 10)};
}

template <class T>
std::string encode_optional(const std::optional<T>& value)
{
    return value ? encode(*value) : std::string{};
}

Value text(std::string_view value) { return std::string(value); }

Value number(std::uint64_t value) { return static_cast<std::int64_t>(value); }

}  // namespace

std::string_view name_of(Table table) noexcept
{
    switch (table) {
    case Table::sandbox: return "sandbox";
    case Table::entry: return "entry";
    case Table::operation: return "operation";
    case Table::meta: return "meta";
    case Table::managed: return "managed";
    }
    return "";
}

std::span<const std::string_view> columns_of(Table table) noexcept
{
    switch (table) {
    case Table::sandbox: return kSandboxColumns;
    case Table::entry: return kEntryColumns;
    case Table::operation: return kOperationColumns;
    case Table::meta: return kMetaColumns;
    case Table::managed: return kManagedColumns;
    }
    return {};
}

std::string row_sum(Table table, std::span<const Value> values)
{
    // Type and length before each value: without them ("ab", "c") and ("a", "bc") would have one
    // sum. The table's name keeps a row from passing for one of another table.
    std::string bytes(name_of(table));
    bytes += ';';
    for (const auto& value : values) {
        if (const auto* integer = std::get_if<std::int64_t>(&value)) {
            bytes += 'i' + std::to_string(*integer);
        } else {
            const auto& string = std::get<std::string>(value);
            bytes += 't' + std::to_string(string.size()) + ':' + string;
        }
        bytes += ';';
    }
    canon::Sha256 hash;
    hash.update(bytes);
    return canon::hex(hash.finish()).substr(0, kSumDigits);
}

Result<Row> checked(Table table, Row stored)
{
    const std::size_t columns = columns_of(table).size();
    if (stored.size() == columns + 1) {
        const Value sum = std::move(stored.back());
        stored.pop_back();
        const auto* found = std::get_if<std::string>(&sum);
        if (found != nullptr && *found == row_sum(table, stored)) return stored;
    }
    // Corrupt and final: an identity that cannot be trusted must not choose what is killed or
    // removed.
    return fail(Code::corrupt,
                "ledger: the checksum of a row of table " + std::string(name_of(table)) +
                    " does not match: the file is damaged; nothing is undone on its word. "
                    "Restore it from a copy");
}

Row to_row(const Sandbox& s)
{
    return {text(s.id.str()),
            text(s.name.str()),
            text(s.profile),
            text(s.driver),
            text(s.isolation_class),
            text(s.plan_digest),
            text(s.plan_path),
            text(s.log_path),
            text(to_string(s.desired)),
            text(to_string(s.state)),
            number(s.generation),
            text(s.created.utc),
            number(s.created.boottime_ns),
            text(s.created.boot_id),
            text(encode_optional(s.shim)),
            text(encode_optional(s.pid1)),
            text(encode_optional(s.ids)),
            number(s.remove_on_exit == RemoveOnExit::yes ? 1U : 0U),
            text(s.labels),
            text(encode_exit(s.exit)),
            number(s.exit_delivered ? 1U : 0U),
            text(s.request_digest)};
}

Row to_row(const Entry& e)
{
    return {number(e.seq), text(e.sandbox.str()),    number(e.generation), text(to_string(e.kind)),
            text(e.name),  text(to_string(e.state)), text(e.identity)};
}

Row to_row(const Claim& c)
{
    return {text(c.operation),      text(c.sandbox.str()),    text(c.verb),
            text(c.request_digest), text(encode(c.holder)),   text(c.step),
            number(c.deadline_ns),  text(to_string(c.state)), text(c.result)};
}

Row to_row(const Managed& m)
{
    return {text(m.sandbox.str()), text(to_string(m.origin)), text(m.source)};
}

Result<Sandbox> sandbox_from(const Row& row)
{
    Reader read(Table::sandbox, row);
    Sandbox s;
    s.id = SandboxId(read.text());
    s.name = SandboxName(read.text());
    s.profile = read.text();
    s.driver = read.text();
    s.isolation_class = read.text();
    s.plan_digest = read.text();
    s.plan_path = read.text();
    s.log_path = read.text();
    s.desired = read.word(parse_desired);
    s.state = read.word(parse_state);
    s.generation = read.integer<std::uint32_t>();
    s.created.utc = read.text();
    s.created.boottime_ns = read.integer<std::uint64_t>();
    s.created.boot_id = read.text();
    s.shim = read.optional(decode_process);
    s.pid1 = read.optional(decode_process);
    s.ids = read.optional(decode_range);
    s.remove_on_exit = read.flag<RemoveOnExit>();
    s.labels = read.text();
    s.exit = read.optional(decode_exit);
    s.exit_delivered = read.flag<bool>();
    s.request_digest = read.text();
    // What later code builds paths and cgroup names from is checked where it enters.
    read.require(is_sandbox_id(s.id.str()) && !s.name.empty());
    return read.done(std::move(s));
}

Result<Entry> entry_from(const Row& row)
{
    Reader read(Table::entry, row);
    Entry e;
    e.seq = read.integer<std::uint64_t>();
    e.sandbox = SandboxId(read.text());
    e.generation = read.integer<std::uint32_t>();
    e.kind = read.word(parse_entry_kind);
    e.name = read.text();
    e.state = read.word(parse_entry_state);
    e.identity = read.text();
    read.require(is_sandbox_id(e.sandbox.str()));
    return read.done(std::move(e));
}

Result<Claim> claim_from(const Row& row)
{
    Reader read(Table::operation, row);
    Claim c;
    c.operation = read.text();
    c.sandbox = SandboxId(read.text());
    c.verb = read.text();
    c.request_digest = read.text();
    const auto holder = read.optional(decode_process);
    read.require(holder.has_value());
    c.holder = holder.value_or(ProcessIdentity{});
    c.step = read.text();
    c.deadline_ns = read.integer<std::uint64_t>();
    c.state = read.word(parse_operation_state);
    c.result = read.text();
    read.require(is_sandbox_id(c.sandbox.str()));
    return read.done(std::move(c));
}

Result<Managed> managed_from(const Row& row)
{
    Reader read(Table::managed, row);
    Managed m;
    m.sandbox = SandboxId(read.text());
    m.origin = read.word(parse_origin);
    m.source = read.text();
    read.require(is_sandbox_id(m.sandbox.str()));
    return read.done(std::move(m));
}

}  // namespace sandbox::ledger
