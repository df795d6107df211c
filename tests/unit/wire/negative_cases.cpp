// SPDX-License-Identifier: Apache-2.0
#include "negative_cases.hpp"

#include <gtest/gtest.h>

#include "samples.hpp"

namespace sandbox::wire::test {

namespace {

constexpr auto kGuest = Direction::to_guest;
constexpr auto kHost = Direction::to_host;
constexpr auto kFirst = Stage::first;
constexpr auto kLater = Stage::later;

struct Place {
    Port port;
    Direction direction;
    Stage stage;
};
constexpr Place kControlFirst{Port::control, kGuest, kFirst};
constexpr Place kControl{Port::control, kGuest, kLater};
constexpr Place kControlReply{Port::control, kHost, kLater};
constexpr Place kOpen{Port::session, kGuest, kFirst};
constexpr Place kSession{Port::session, kGuest, kLater};
constexpr Place kSessionReply{Port::session, kHost, kLater};
constexpr Place kEvents{Port::events, kHost, kLater};
constexpr Place kNetwork{Port::network, kHost, kLater};
constexpr Place kBridge{Port::bridge, kGuest, kFirst};
constexpr Place kInit{Port::init, kGuest, kLater};
constexpr Place kBootstrap{Port::bootstrap, kGuest, kFirst};
constexpr Place kMuxFirst{Port::mux, kHost, kFirst};
constexpr Place kMux{Port::mux, kHost, kLater};
constexpr Place kMachine{Port::bootstrap, kGuest, kLater};
constexpr Place kHelper{Port::helper, kGuest, kLater};

class Cases {
public:
    void add(std::string name, Place place, WireError error, std::string why, ByteVector bytes)
    {
        all_.push_back({std::move(name), place.port, place.direction, place.stage, error,
                        std::move(why), std::move(bytes)});
    }
    void add(std::string name, Place place, WireError error, std::string why, std::string_view hex)
    {
        add(std::move(name), place, error, std::move(why), from_hex(hex));
    }
    std::vector<NegativeCase> take() { return std::move(all_); }

private:
    std::vector<NegativeCase> all_;
};

ByteVector golden_bytes(Port port, std::string_view name)
{
    for (const Sample& sample : samples()) {
        if (sample.port == port && sample.name == name) return encode_any(sample.message);
    }
    ADD_FAILURE() << "no sample " << name;
    return {};
}

// The named sample with one byte set.
ByteVector with_byte(Port port, std::string_view name, std::size_t at, std::uint8_t value)
{
    ByteVector bytes = golden_bytes(port, name);
    bytes.at(at) = std::byte{value};
    return bytes;
}

ByteVector with_next_version(Port port, std::string_view name, std::size_t at)
{
    return with_byte(port, name, at + 1, kProtocolVersion + 1);
}

// A frame whose payload has one byte too many, told by its length.
ByteVector with_trailing_byte(Port port, std::string_view name)
{
    ByteVector bytes = golden_bytes(port, name);
    const auto length = static_cast<std::uint32_t>(bytes.size() - kHeaderSize + 1);
    const auto header = encode_header({std::to_integer<std::uint8_t>(bytes.at(4)), length});
    std::copy(header.begin(), header.end(), bytes.begin());
    bytes.push_back(std::byte{0});
    return bytes;
}

void add_header_cases(Cases& cases)
{
    using enum WireError;
    cases.add("hello.truncated_header", kControlFirst, truncated, "4 of 5 header bytes",
              "00 00 00 1b");
    cases.add("hello.truncated_payload", kControlFirst, truncated, "27 bytes said, 2 came",
              "00 00 00 1b 01 00 01");
    cases.add("unknown_type", kControl, unknown_type, "0x1f is no message", "00 00 00 00 1f");
    cases.add("provision.too_long", kControl, too_long, "head: one above 8192", "00 00 20 01 03");
    cases.add("hello.all_ones", kControlFirst, too_long, "4 GiB announced", "ff ff ff ff 01");
    cases.add("open.too_long", kOpen, too_long, "OPEN: one above 1 MiB", "00 10 00 01 20");
    cases.add("stdin.too_long", kSession, too_long, "data: one above 8 MiB", "00 80 00 01 22");
    cases.add("packet.too_long", kNetwork, too_long, "packet: one above 65535", "00 01 00 00 62");
    cases.add("bootstrap.too_long", kBootstrap, too_long, "one above 256 KiB", "00 04 00 01 e0");
    cases.add("pass.too_long", kInit, too_long, "one above a 4096 byte packet", [] {
        ByteVector packet(kMaxInitPacket + 1);
        packet.at(0) = std::byte{Pass::kType};
        return packet;
    }());
    cases.add("hello.wrong_port", kOpen, type_not_allowed, "HELLO on the session port",
              "00 00 00 1b 01");
    cases.add("stdout.wrong_direction", kSession, type_not_allowed, "output sent to the guest",
              "00 00 00 00 24");
    cases.add("stdin.before_open", kOpen, type_not_allowed, "the first frame must be OPEN",
              "00 00 00 00 22");
    cases.add("open.second", kSession, type_not_allowed, "one session a connection",
              golden_bytes(Port::session, "open"));
    cases.add("error.first", kControlFirst, type_not_allowed, "a connection opens with HELLO",
              golden_bytes(Port::control, "error"));
    cases.add("pass.wrong_direction", Place{Port::init, kHost, kLater}, type_not_allowed,
              "only the shim passes streams", golden_bytes(Port::init, "pass"));
    cases.add("empty_packet", kInit, truncated, "a packet without a type", "");
    cases.add("bootstrap.truncated", kBootstrap, truncated, "the record ends in its header",
              "00 00 01");
}

void add_version_cases(Cases& cases)
{
    using enum WireError;
    cases.add("hello.version_mismatch", kControlFirst, version_mismatch, "version 4",
              with_next_version(Port::control, "hello", 5));
    // Nothing after the version is looked at: it has another layout.
    cases.add("hello.version_only", kControlFirst, version_mismatch, "version 4 and no more",
              "00 00 00 02 01 00 04");
    cases.add("welcome.version_mismatch", kControlReply, version_mismatch, "version 4",
              with_next_version(Port::control, "welcome", 5));
    cases.add("open.version_mismatch", kOpen, version_mismatch, "version 4",
              with_next_version(Port::session, "open", 5));
    cases.add("bridge_open.version_mismatch", kBridge, version_mismatch, "version 4",
              with_next_version(Port::bridge, "bridge_open", 5));
    cases.add("bootstrap.version_mismatch", kBootstrap, version_mismatch, "version 4",
              with_next_version(Port::bootstrap, "bootstrap", 5));
    cases.add("init_up.version_mismatch", Place{Port::init, kHost, kLater}, version_mismatch,
              "version 4", with_next_version(Port::init, "init_up", 1));
    cases.add("helper_hello.version_mismatch", Place{Port::helper, kGuest, kFirst},
              version_mismatch, "version 4", with_next_version(Port::helper, "helper_hello", 5));
}

void add_payload_cases(Cases& cases)
{
    using enum WireError;
    cases.add("hello.trailing", kControlFirst, bad_payload, "one byte after the last field",
              with_trailing_byte(Port::control, "hello"));
    cases.add("stdin_eof.trailing", kSession, bad_payload, "an empty message with a byte",
              "00 00 00 01 23 00");
    cases.add("hello.bad_bool", kControlFirst, bad_payload, "resume is 2",
              with_byte(Port::control, "hello", 31, 2));
    cases.add("error.bad_utf8", kControlReply, bad_payload, "an over-long slash",
              "00 00 00 08 7f 00 05 00 00 00 02 c0 af");
    cases.add("rotated.unknown_tag", kControlReply, bad_payload, "kind 5", "00 00 00 01 0a 05");
    cases.add("rotated.tag_zero", kControlReply, bad_payload, "kind 0", "00 00 00 01 0a 00");
    cases.add("rotate.binding_without_key", kControl, bad_payload, "kind 1 with a binding",
              with_byte(Port::control, "rotate", 5, 1));
    cases.add("error.detail_too_long", kControlReply, bad_payload, "detail of 257 bytes", [] {
        ByteVector bytes = from_hex("00 00 01 07 7f 00 05 00 00 01 01");
        bytes.resize(bytes.size() + 257, std::byte{'x'});
        return bytes;
    }());
    cases.add("welcome.string_past_end", kControlReply, bad_payload, "64 bytes said, none came",
              "00 00 00 06 02 00 03 00 00 00 40");
    cases.add("exit.unknown_tag", kSessionReply, bad_payload, "outcome 5",
              "00 00 00 05 29 05 00 00 00 00");
    cases.add("signal.zero", kSession, refused, "signal 0", "00 00 00 01 27 00");
    cases.add("signal.65", kSession, refused, "signal 65", "00 00 00 01 27 41");
    cases.add("open.unknown_kind", kOpen, bad_payload, "kind 6",
              with_byte(Port::session, "open", 7, 6));
    cases.add("open.list_past_end", kOpen, bad_payload, "1024 groups said, none came",
              "00 00 00 0d 20 00 03 02 00 00 00 00 00 00 00 00 04 00");
    cases.add("open.too_many_groups", kOpen, bad_payload, "1025 groups",
              "00 00 00 0d 20 00 03 02 00 00 00 00 00 00 00 00 04 01");
    cases.add("guest_state.unknown_tag", kEvents, bad_payload, "kind 9",
              "00 00 00 11 43 00 00 00 00 00 00 00 01 09 00 00 00 00 00 00 00 00");
    cases.add("bridge_open.port_zero", kBridge, bad_payload, "port 0",
              "00 00 00 04 80 00 03 00 00");
    cases.add("pass.leaf_without_count", kInit, bad_payload, "v2_dir with no descriptor",
              "d1 00 00 13 89 00 00 00 00 02 00");
    cases.add("pass.bad_leaf", kInit, bad_payload, "leaf 3", "d1 00 00 13 89 00 00 00 00 03 01");
    cases.add("bootstrap.unknown_mode", kBootstrap, bad_payload, "mode 3",
              with_byte(Port::bootstrap, "bootstrap", 7, 3));
    cases.add("bootstrap.bytes_behind", kBootstrap, bad_payload, "a byte after the record", [] {
        ByteVector bytes = golden_bytes(Port::bootstrap, "bootstrap");
        bytes.push_back(std::byte{0});
        return bytes;
    }());
    cases.add("request.unknown_op", kHelper, bad_payload, "op 11", "00 00 00 01 a2 0b");
    cases.add("refusal.code_20", Place{Port::helper, kHost, kLater}, bad_payload, "code 20",
              "00 00 00 0f a4 00 14 00 00 00 00 00 00 00 00 00 00 00 00 00");
}

void add_mux_cases(Cases& cases)
{
    using enum WireError;
    cases.add("mux_hello.version_mismatch", kMuxFirst, version_mismatch, "version 4",
              with_next_version(Port::mux, "mux_hello", 5));
    cases.add("mux_open.before_hello", kMuxFirst, type_not_allowed, "the first frame is MUX_HELLO",
              golden_bytes(Port::mux, "mux_open"));
    cases.add("mux_hello.second", kMux, type_not_allowed, "MUX_HELLO comes once",
              golden_bytes(Port::mux, "mux_hello"));
    cases.add("mux_hello.no_window", kMuxFirst, bad_payload, "window 0",
              "00 00 00 06 f0 00 03 00 00 00 00");
    cases.add("mux_hello.wide_window", kMuxFirst, bad_payload, "a window of 1 MiB and a byte",
              "00 00 00 06 f0 00 03 00 10 00 01");
    cases.add("mux_open.stream_zero", kMux, bad_payload, "stream 0 is there from the start",
              "00 00 00 10 f1 00 00 00 00 00 00 13 89 00 00 10 00 00 00 00 00");
    cases.add("mux_open.long_session", kMux, bad_payload, "a session of 65 bytes", [] {
        ByteVector bytes = from_hex(
            "00 00 00 51 f1 00 00 00 03 00 00 13 89 00 00 10 00 00 00 00 41");
        bytes.resize(bytes.size() + 65, std::byte{'x'});
        return bytes;
    }());
    cases.add("mux_data.too_long", kMux, too_long, "mux: one byte above 32768", "00 00 80 05 f3");
    cases.add("mux_data.empty", kMux, bad_payload, "no byte", "00 00 00 04 f3 00 00 00 01");
    cases.add("mux_data.no_stream", kMux, bad_payload, "half a number", "00 00 00 02 f3 00 00");
    cases.add("mux_credit.zero", kMux, bad_payload, "no credit",
              "00 00 00 08 f4 00 00 00 01 00 00 00 00");
    cases.add("mux_reset.trailing", kMux, bad_payload, "one byte too many",
              with_trailing_byte(Port::mux, "mux_reset"));
    cases.add("machine.too_long", kMachine, too_long, "one above 1 MiB", "00 10 00 01 e1");
    cases.add("machine.before_bootstrap", kBootstrap, type_not_allowed, "BOOTSTRAP comes first",
              golden_bytes(Port::bootstrap, "machine"));
    cases.add("machine.unknown_step", kMachine, bad_payload, "kind 11",
              with_byte(Port::bootstrap, "machine", 31, 11));
    cases.add("machine.foreign_file", kMachine, bad_payload, "a limit in /ids.max", [] {
        ByteVector bytes = golden_bytes(Port::bootstrap, "machine");
        *(bytes.end() - 13) = std::byte{'/'};
        return bytes;
    }());
    cases.add("close_output.three", kSession, bad_payload, "output 3", "00 00 00 01 2c 03");
}

}  // namespace

std::vector<NegativeCase> negative_cases()
{
    Cases cases;
    add_mux_cases(cases);
    add_header_cases(cases);
    add_version_cases(cases);
    add_payload_cases(cases);
    return cases.take();
}

}  // namespace sandbox::wire::test
