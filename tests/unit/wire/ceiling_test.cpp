// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "samples.hpp"
#include "wire/codec.hpp"

// Each field's own ceiling, met exactly and passed by one. Reader and Writer take the ceiling from
// the same line, so proving the writer's value and the reader's comparison proves both.
namespace sandbox::wire::test {

namespace {

template <class M>
auto encode_one(const M& message)
{
    if constexpr (M::kType >= InitUp::kType && M::kType <= GuestReport::kType) {
        return encode_packet(message);
    } else {
        return encode(message);
    }
}

// `set(message, n)` makes the field n bytes or items long.
template <class M>
void expect_ceiling(const char* field, std::size_t ceiling, M message, auto set)
{
    set(message, ceiling);
    const auto fits = encode_one(message);
    EXPECT_TRUE(fits) << field << " at " << ceiling << ": " << fits.error().message();
    set(message, ceiling + 1);
    const auto over = encode_one(message);
    ASSERT_FALSE(over) << field << " above " << ceiling;
    EXPECT_NE(over.error().message().find(std::string(field) + " breaks"), std::string::npos)
        << over.error().message();
}

std::string text(std::size_t size) { return std::string(size, 'x'); }

std::string path(std::size_t size) { return "/" + text(size - 1); }

Open smallest_open()
{
    Open open;
    open.argv = {"/bin/true"};
    return open;
}

Bootstrap landlocked()
{
    Bootstrap record;
    record.landlock_abi = 1;
    return record;
}

HelperResult result_of(HelperOp op)
{
    HelperResult result;
    result.op = op;
    return result;
}

}  // namespace

TEST(FieldCeilings, HoldOnTheControlPort)
{
    expect_ceiling("agent_version", 64, Welcome{},
                   [](auto& m, std::size_t n) { m.agent_version = text(n); });
    expect_ceiling("kernel_release", 64, Welcome{},
                   [](auto& m, std::size_t n) { m.kernel_release = text(n); });
    expect_ceiling("hostname", 63, Provision{},
                   [](auto& m, std::size_t n) { m.hostname = text(n); });
    expect_ceiling("provider_keys", 32, Provision{},
                   [](auto& m, std::size_t n) { m.provider_keys.assign(n, {"", "A", ""}); });
    expect_ceiling("provider_keys.binding", 64, Provision{},
                   [](auto& m, std::size_t n) { m.provider_keys = {{text(n), "A", ""}}; });
    expect_ceiling("provider_keys.env_name", 64, Provision{},
                   [](auto& m, std::size_t n) { m.provider_keys = {{"", text(n), ""}}; });
    expect_ceiling("provider_keys.value", 256, Provision{},
                   [](auto& m, std::size_t n) { m.provider_keys = {{"", "A", text(n)}}; });
    expect_ceiling("binding", 64, Rotate{RotateKind::provider_key, "", {}},
                   [](auto& m, std::size_t n) { m.binding = text(n); });
    expect_ceiling("value", 256, Rotate{}, [](auto& m, std::size_t n) { m.value.resize(n); });
    expect_ceiling("detail", 256, ErrorMessage{},
                   [](auto& m, std::size_t n) { m.detail = text(n); });
}

TEST(FieldCeilings, HoldOnTheSessionPort)
{
    expect_ceiling("groups", 1024, smallest_open(),
                   [](auto& m, std::size_t n) { m.groups.resize(n); });
    expect_ceiling("argv", 65535, smallest_open(),
                   [](auto& m, std::size_t n) { m.argv.resize(n); });
    expect_ceiling("env", 65535, smallest_open(),
                   [](auto& m, std::size_t n) { m.env.assign(n, {"A", ""}); });
    expect_ceiling("env", 128, smallest_open(),
                   [](auto& m, std::size_t n) { m.env = {{text(n), ""}}; });
    expect_ceiling("cwd", 4096, smallest_open(), [](auto& m, std::size_t n) { m.cwd = path(n); });
    expect_ceiling("term", 64, smallest_open(), [](auto& m, std::size_t n) { m.term = text(n); });
    expect_ceiling("rlimits", 16, smallest_open(),
                   [](auto& m, std::size_t n) { m.rlimits.resize(n); });
    expect_ceiling("groups", 1024, Confined{}, [](auto& m, std::size_t n) { m.groups.resize(n); });
    expect_ceiling("open_fds", 256, Confined{},
                   [](auto& m, std::size_t n) { m.open_fds.resize(n); });
}

TEST(FieldCeilings, HoldInTheMuxAndInMachine)
{
    expect_ceiling("session", 64, MuxOpen{1, 5001, 1, ""},
                   [](auto& m, std::size_t n) { m.session = text(n); });
    expect_ceiling("detail", 256, GuestFaulty{},
                   [](auto& m, std::size_t n) { m.detail = text(n); });
    expect_ceiling("items.name", 64, GuestReport{},
                   [](auto& m, std::size_t n) { m.items = {{text(n), ""}}; });
    expect_ceiling("items.observed", 512, GuestReport{},
                   [](auto& m, std::size_t n) { m.items = {{"", text(n)}}; });
    expect_ceiling("items", 64, GuestReport{}, [](auto& m, std::size_t n) { m.items.resize(n); });
    expect_ceiling("shares", 32, Machine{},
                   [](auto& m, std::size_t n) { m.shares.resize(n, {"ro", true}); });
    expect_ceiling("shares.tag", 36, Machine{},
                   [](auto& m, std::size_t n) { m.shares = {{text(n), true}}; });
    MachineStep folder;
    folder.target = "etc";
    expect_ceiling("steps", 2048, Machine{},
                   [&folder](auto& m, std::size_t n) { m.steps.resize(n, folder); });
    expect_ceiling("steps.content", 65536, Machine{}, [&folder](auto& m, std::size_t n) {
        m.steps = {folder};
        m.steps[0].content = text(n);
    });
    expect_ceiling("workload", 32, Machine{},
                   [](auto& m, std::size_t n) { m.workload.resize(n, {"pids.max", "1"}); });
    expect_ceiling("control", 256, Machine{},
                   [](auto& m, std::size_t n) { m.control = {{"pids.max", text(n)}}; });
    expect_ceiling("masked", 64, Machine{},
                   [](auto& m, std::size_t n) { m.masked.resize(n, "/proc/keys"); });
}

TEST(FieldCeilings, HoldBetweenShimAndInit)
{
    expect_ceiling("session", 64, Pass{}, [](auto& m, std::size_t n) { m.session = text(n); });
    expect_ceiling("session", 64, PassRefused{},
                   [](auto& m, std::size_t n) { m.session = text(n); });
    expect_ceiling("session", 64, SessionOpened{},
                   [](auto& m, std::size_t n) { m.session = text(n); });
    expect_ceiling("session", 64, SessionEnded{},
                   [](auto& m, std::size_t n) { m.session = text(n); });
    expect_ceiling("text", 1024, InitLog{}, [](auto& m, std::size_t n) { m.text = text(n); });
    expect_ceiling("sandbox_id", 64, Bootstrap{},
                   [](auto& m, std::size_t n) { m.sandbox_id = text(n); });
    expect_ceiling("hostname", 63, Bootstrap{},
                   [](auto& m, std::size_t n) { m.hostname = text(n); });
    expect_ceiling("permitted_ids", 64, Bootstrap{},
                   [](auto& m, std::size_t n) { m.permitted_ids.resize(n); });
    expect_ceiling("permitted_groups", 1024, Bootstrap{},
                   [](auto& m, std::size_t n) { m.permitted_groups.resize(n); });
    expect_ceiling("landlock", 512, landlocked(),
                   [](auto& m, std::size_t n) { m.landlock.assign(n, {"/", 1}); });
    expect_ceiling("landlock.path", 4096, landlocked(),
                   [](auto& m, std::size_t n) { m.landlock = {{path(n), 1}}; });
    expect_ceiling("landlock_ports", 64, landlocked(),
                   [](auto& m, std::size_t n) { m.landlock_ports.resize(n); });
    expect_ceiling("env", 256, Bootstrap{},
                   [](auto& m, std::size_t n) { m.env.assign(n, {"A", ""}); });
    expect_ceiling("env", 4096, Bootstrap{},
                   [](auto& m, std::size_t n) { m.env = {{"A", text(n)}}; });
    expect_ceiling("rlimits", 16, Bootstrap{}, [](auto& m, std::size_t n) { m.rlimits.resize(n); });
}

TEST(FieldCeilings, HoldOnTheHelperProtocol)
{
    expect_ceiling("helper_version", 64, HelperWelcome{},
                   [](auto& m, std::size_t n) { m.helper_version = text(n); });
    expect_ceiling("engine_version", 64, HelperWelcome{},
                   [](auto& m, std::size_t n) { m.engine_version = text(n); });
    expect_ceiling("detail", 256, HelperRefusal{},
                   [](auto& m, std::size_t n) { m.detail = text(n); });
    expect_ceiling("facts", 1024, result_of(HelperOp::probe),
                   [](auto& m, std::size_t n) { m.facts.resize(n); });
    expect_ceiling("facts.name", 64, result_of(HelperOp::probe),
                   [](auto& m, std::size_t n) { m.facts = {{text(n), ProbeStatus::ok, ""}}; });
    expect_ceiling("facts.evidence", 512, result_of(HelperOp::probe),
                   [](auto& m, std::size_t n) { m.facts = {{"", ProbeStatus::ok, text(n)}}; });
    expect_ceiling("endpoint.path", 4096, result_of(HelperOp::start),
                   [](auto& m, std::size_t n) { m.endpoint = UnixPath{text(n)}; });
    expect_ceiling("absences", 16, result_of(HelperOp::kill),
                   [](auto& m, std::size_t n) { m.absences.resize(n); });
}

TEST(FieldCeilings, AreHeldByTheReaderToTheByte)
{
    const auto string_fails = [](std::size_t size) {
        const std::string value = text(size);
        ByteVector bytes;
        Writer writer(bytes);
        writer.text("text", value, size);
        Reader reader(bytes);
        std::string back;
        reader.text("text", back, 64);
        return reader.failed();
    };
    EXPECT_FALSE(string_fails(64));
    EXPECT_TRUE(string_fails(65));
    const auto blob_fails = [](std::size_t size) {
        const ByteVector value(size);
        ByteVector bytes;
        Writer writer(bytes);
        writer.blob("blob", value, size);
        Reader reader(bytes);
        ByteVector back;
        reader.blob("blob", back, 64);
        return reader.failed();
    };
    EXPECT_FALSE(blob_fails(64));
    EXPECT_TRUE(blob_fails(65));
    const auto list_fails = [](std::size_t size) {
        const std::vector<std::uint32_t> value(size);
        ByteVector bytes;
        Writer writer(bytes);
        writer.list("list", value, size, [](Writer& w, std::uint32_t item) { w.number("", item); });
        Reader reader(bytes);
        std::vector<std::uint32_t> back;
        reader.list("list", back, 64, [](Reader& r, std::uint32_t& item) { r.number("", item); });
        return reader.failed();
    };
    EXPECT_FALSE(list_fails(64));
    EXPECT_TRUE(list_fails(65));
}

TEST(FieldRules, RefuseNulBytesWhereTheKernelWouldStopReading)
{
    using namespace std::string_literals;
    const auto bad = "a\0b"s;
    EXPECT_FALSE(encode(Provision{.hostname = bad}));
    EXPECT_FALSE(encode(Provision{.provider_keys = {{"", bad, ""}}}));
    EXPECT_FALSE(encode(Provision{.provider_keys = {{"", "A", bad}}}));
    EXPECT_FALSE(encode(Bootstrap{.sandbox_id = bad}));
    EXPECT_FALSE(encode(Bootstrap{.hostname = bad}));
    EXPECT_FALSE(encode(Bootstrap{.env = {{"A", bad}}}));
    EXPECT_FALSE(encode_packet(Pass{.session = bad}));
    // A log line is text for people; NUL is UTF-8 like any other.
    EXPECT_TRUE(encode_packet(InitLog{bad}));
}

TEST(FieldRules, AllowEveryTagAndNoOther)
{
    const auto exits = [](std::uint8_t tag) {
        const std::array payload{std::byte{tag}, std::byte{0}, std::byte{0}, std::byte{0},
                                 std::byte{0}};
        return decode_as<SessionMessage>(Direction::to_host, Exit::kType, payload).has_value();
    };
    const auto powers_off = [](std::uint8_t tag) {
        const std::array payload{std::byte{tag}};
        return decode_as<ControlMessage>(Direction::to_guest, Poweroff::kType, payload).has_value();
    };
    for (unsigned value = 0; value < 256; ++value) {
        const auto tag = static_cast<std::uint8_t>(value);
        EXPECT_EQ(exits(tag), value >= 1 && value <= 4) << value;
        EXPECT_EQ(powers_off(tag), value >= 1 && value <= 3) << value;
    }
}

}  // namespace sandbox::wire::test
