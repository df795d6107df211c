// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "samples.hpp"
#include "wire/codec.hpp"

namespace sandbox::wire::test {

namespace {

std::span<const std::byte> payload_of(const Sample& sample, const ByteVector& bytes)
{
    return std::span(bytes).subspan(sample.port == Port::init ? 1 : kHeaderSize);
}

bool is_raw(std::uint8_t type)
{
    return type == Stdin::kType || type == Stdout::kType || type == Stderr::kType ||
           type == Packet::kType || type == MuxData::kType;
}

Open open_with(auto change)
{
    Open open;
    open.argv = {"/bin/true"};
    change(open);
    return open;
}

void expect_refused_to_encode(const auto& message, std::string_view field)
{
    const auto encoded = encode(message);
    ASSERT_FALSE(encoded) << field;
    EXPECT_EQ(encoded.error().code(), Code::invalid_argument);
    EXPECT_NE(encoded.error().message().find(field), std::string::npos)
        << encoded.error().message();
}

bool encodes_and_returns(const Open& open)
{
    const auto bytes = encode(open);
    if (!bytes) return false;
    const auto back = decode_any(Port::session, Direction::to_guest, Stage::first, *bytes);
    return back && *back == Message(SessionMessage(open));
}

Result<std::uint8_t> kind_through_try(std::span<const std::byte> payload)
{
    const auto message = TRY(decode_as<SessionMessage>(Direction::to_guest, 0x20, payload));
    return static_cast<std::uint8_t>(std::get<Open>(message).kind);
}

}  // namespace

TEST(WireMessages, RefuseAPayloadCutAtAnyByte)
{
    for (const Sample& sample : samples()) {
        // Stream bytes are whole at any length.
        const std::uint8_t type = type_of(sample.message);
        if (is_raw(type)) continue;
        const ByteVector bytes = encode_any(sample.message);
        const auto payload = payload_of(sample, bytes);
        for (std::size_t cut = 0; cut < payload.size(); ++cut) {
            const auto decoded = decode_payload(sample.port, sample.direction, type,
                                                payload.first(cut));
            ASSERT_FALSE(decoded) << sample.name << " cut at " << cut;
            EXPECT_EQ(decoded.error().error, WireError::bad_payload)
                << sample.name << " cut at " << cut;
        }
    }
}

TEST(WireMessages, RefuseAByteAfterTheLastField)
{
    for (const Sample& sample : samples()) {
        const std::uint8_t type = type_of(sample.message);
        if (is_raw(type)) continue;
        ByteVector bytes = encode_any(sample.message);
        bytes.push_back(std::byte{0});
        const auto decoded = decode_payload(sample.port, sample.direction, type,
                                            payload_of(sample, bytes));
        ASSERT_FALSE(decoded) << sample.name;
        EXPECT_EQ(decoded.error().error, WireError::bad_payload) << sample.name;
    }
}

TEST(WireMessages, AreCanonicalUnderEveryFlippedBit)
{
    // A changed payload is refused or means something else; it never decodes to the same value.
    for (const Sample& sample : samples()) {
        const ByteVector bytes = encode_any(sample.message);
        const auto payload = payload_of(sample, bytes);
        const std::uint8_t type = type_of(sample.message);
        for (std::size_t bit = 0; bit < payload.size() * 8; ++bit) {
            ByteVector changed(payload.begin(), payload.end());
            changed.at(bit / 8) ^= std::byte{1} << (bit % 8);
            const auto decoded = decode_payload(sample.port, sample.direction, type, changed);
            if (!decoded) continue;
            EXPECT_NE(*decoded, sample.message) << sample.name << " bit " << bit;
        }
    }
}

TEST(WireMessages, AreRefusedOnEveryOtherPortAndInTheOtherDirection)
{
    for (const Sample& sample : samples()) {
        const std::uint8_t type = type_of(sample.message);
        if (type == ErrorMessage::kType) continue;
        const ByteVector bytes = encode_any(sample.message);
        const auto payload = payload_of(sample, bytes);
        for (const Sample& other : samples()) {
            if (other.port == sample.port) continue;
            const auto decoded = decode_payload(other.port, sample.direction, type, payload);
            ASSERT_FALSE(decoded) << sample.name;
            EXPECT_EQ(decoded.error().error, WireError::type_not_allowed) << sample.name;
        }
        // PACKET and the mux go both ways.
        if (type == Packet::kType || sample.port == Port::mux) continue;
        const Direction back = sample.direction == Direction::to_guest ? Direction::to_host
                                                                       : Direction::to_guest;
        EXPECT_FALSE(decode_payload(sample.port, back, type, payload)) << sample.name;
    }
}

TEST(WireMessages, SurviveRandomPayloads)
{
    std::mt19937 random(42);  // fixed: a failure must come again
    std::uniform_int_distribution<unsigned> any(0, 255);
    for (int round = 0; round < 200; ++round) {
        for (const TypeInfo& row : message_table()) {
            ByteVector payload(any(random));
            for (std::byte& byte : payload) {
                // Small values make plausible lengths, counts and tags.
                byte = static_cast<std::byte>(any(random) % (round % 2 == 0 ? 4 : 256));
            }
            const Port port = row.port == Port::any ? Port::bridge : row.port;
            for (const Direction way : {Direction::to_guest, Direction::to_host}) {
                const auto message = decode_payload(port, way, row.type, payload);
                if (!message) continue;
                const ByteVector again = encode_any(*message);
                const std::size_t skip = port == Port::init ? 1 : kHeaderSize;
                EXPECT_EQ(
                    ByteVector(again.begin() + static_cast<std::ptrdiff_t>(skip), again.end()),
                    payload)
                    << row.name;
            }
        }
    }
}

TEST(OpenMessage, HasTheBytesThePageSays)
{
    const Open open = open_with([](Open& o) {
        o.uid = 1000;
        o.gid = 1001;
        o.groups = {27};
        o.env = {{"A", "b"}};
        o.cwd = "/";
        o.umask = 022;
        o.rlimits = {{7, 1024}};
        o.gate = true;
    });
    EXPECT_EQ(to_hex(*encode(open)), to_hex(from_hex("00 00 00 4e 20"
                                                     "00 03 02"
                                                     "00 00 03 e8 00 00 03 e9"
                                                     "00 01 00 00 00 1b"
                                                     "00 01 00 00 00 09 2f 62 69 6e 2f 74 72 75 65"
                                                     "00 01 00 00 00 01 41 00 00 00 01 62"
                                                     "00 00 00 01 2f"
                                                     "00 00 00 00"
                                                     "00 00 00 00"
                                                     "00 00 00 00"
                                                     "00 00 00 12"
                                                     "00 01 07 00 00 00 00 00 00 04 00"
                                                     "01 00")));
}

TEST(OpenMessage, TakesItemsOf128KiBAndRefusesOneByteMore)
{
    EXPECT_TRUE(
        encodes_and_returns(open_with([](Open& o) { o.argv.emplace_back(kMaxItem, 'x'); })));
    EXPECT_TRUE(encodes_and_returns(
        open_with([](Open& o) { o.env.emplace_back("BIG", std::string(kMaxItem, 'x')); })));
    expect_refused_to_encode(open_with([](Open& o) { o.argv.emplace_back(kMaxItem + 1, 'x'); }),
                             "argv");
    expect_refused_to_encode(
        open_with([](Open& o) { o.env.emplace_back("BIG", std::string(kMaxItem + 1, 'x')); }),
        "env");
}

TEST(OpenMessage, StaysBelowOneMebibyteAsAWhole)
{
    const auto filled = [](std::size_t last) {
        return open_with([last](Open& o) {
            o.argv.assign(7, std::string(kMaxItem, 'x'));
            o.argv.emplace_back(last, 'x');
        });
    };
    const std::size_t others = encode(filled(0))->size() - kHeaderSize;
    const auto exact = encode(filled(kMaxOpen - others));
    ASSERT_TRUE(exact);
    EXPECT_EQ(exact->size(), kMaxOpen + kHeaderSize);
    EXPECT_TRUE(decode_any(Port::session, Direction::to_guest, Stage::first, *exact));
    expect_refused_to_encode(filled(kMaxOpen - others + 1), "the whole payload");
}

TEST(OpenMessage, RefusesWhatTheKernelWouldReadDifferently)
{
    using namespace std::string_literals;
    expect_refused_to_encode(open_with([](Open& o) { o.argv.clear(); }), "argv");
    expect_refused_to_encode(open_with([](Open& o) { o.argv.push_back("a\0b"s); }), "argv");
    expect_refused_to_encode(open_with([](Open& o) { o.argv.push_back("\xFF"); }), "argv");
    expect_refused_to_encode(open_with([](Open& o) { o.env = {{"A=B", "c"}}; }), "env");
    expect_refused_to_encode(open_with([](Open& o) { o.env = {{"", "c"}}; }), "env");
    expect_refused_to_encode(open_with([](Open& o) { o.env = {{"A", "c\0d"s}}; }), "env");
    expect_refused_to_encode(open_with([](Open& o) { o.cwd = "work"; }), "cwd");
    expect_refused_to_encode(open_with([](Open& o) { o.umask = 01000; }), "umask");
    expect_refused_to_encode(open_with([](Open& o) { o.rlimits = {{16, 1}}; }), "rlimits");
    expect_refused_to_encode(open_with([](Open& o) { o.groups.resize(1025); }), "groups");
    expect_refused_to_encode(open_with([](Open& o) { o.kind = SessionKind{9}; }), "kind");
}

TEST(SignalMessage, IsRefusedRatherThanBrokenOutsideOneToSixtyFour)
{
    for (unsigned value = 0; value < 256; ++value) {
        const std::array payload{static_cast<std::byte>(value)};
        const auto decoded = decode_as<SessionMessage>(Direction::to_guest, 0x27, payload);
        if (value >= 1 && value <= 64) {
            ASSERT_TRUE(decoded) << value;
            EXPECT_EQ(std::get<Signal>(*decoded).signal, value);
        } else {
            ASSERT_FALSE(decoded) << value;
            EXPECT_EQ(decoded.error().error, WireError::refused) << value;
        }
    }
}

TEST(ConfinedMessage, HasTheBytesThePageSays)
{
    const Confined confined{12, 1000, 1001, {}, {1, 2, 3, 4, 5}, true, 2, 3, 7, {0, 2}};
    EXPECT_EQ(to_hex(*encode(confined)),
              to_hex(from_hex("00 00 00 4a 2a"
                              "00 00 00 0c 00 00 03 e8 00 00 03 e9 00 00"
                              "00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 02"
                              "00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 04"
                              "00 00 00 00 00 00 00 05"
                              "01 02 00 00 00 03 00 00 00 07"
                              "00 02 00 00 00 00 00 00 00 02")));
}

TEST(ConfinedMessage, FitsItsClassWhenEveryListIsFull)
{
    Confined confined;
    confined.groups.resize(1024);
    confined.open_fds.resize(256);
    EXPECT_TRUE(encode(confined));
    confined.open_fds.resize(257);
    expect_refused_to_encode(confined, "open_fds");
}

TEST(ProvisionMessage, StaysBelowTheHeadCeilingAsAWhole)
{
    Provision provision;
    provision.provider_keys.assign(32, {"b", "A", std::string(200, 'x')});
    EXPECT_TRUE(encode(provision));
    provision.provider_keys.assign(32, {"b", "A", std::string(256, 'x')});
    expect_refused_to_encode(provision, "the whole payload");
    provision.provider_keys.assign(33, {"b", "A", ""});
    expect_refused_to_encode(provision, "provider_keys");
}

TEST(PassMessage, CarriesOnlyLeavesItsDescriptorsCanFill)
{
    const auto encodes = [](LeafKind leaf, std::uint8_t count) {
        return encode_packet(Pass{5001, "s", leaf, count}).has_value();
    };
    EXPECT_TRUE(encodes(LeafKind::none, 0));
    EXPECT_FALSE(encodes(LeafKind::none, 1));
    EXPECT_FALSE(encodes(LeafKind::v1_tasks, 0));
    EXPECT_TRUE(encodes(LeafKind::v1_tasks, 16));
    EXPECT_FALSE(encodes(LeafKind::v1_tasks, 17));
    EXPECT_FALSE(encodes(LeafKind::v2_dir, 0));
    EXPECT_TRUE(encodes(LeafKind::v2_dir, 1));
    EXPECT_FALSE(encodes(LeafKind::v2_dir, 2));
}

TEST(BootstrapRecord, RefusesContradictions)
{
    const auto encodes = [](auto change) {
        Bootstrap record;
        change(record);
        return encode(record).has_value();
    };
    EXPECT_TRUE(encodes([](Bootstrap&) {}));
    EXPECT_FALSE(encodes([](Bootstrap& r) { r.max_sessions = 0; }));
    EXPECT_FALSE(encodes([](Bootstrap& r) { r.bpf.resize(7); }));
    EXPECT_TRUE(encodes([](Bootstrap& r) { r.bpf.resize(kMaxBpf); }));
    EXPECT_FALSE(encodes([](Bootstrap& r) { r.bpf.resize(kMaxBpf + 8); }));
    EXPECT_FALSE(encodes([](Bootstrap& r) {
        r.channel = BootChannel::vsock;
        r.channel_fd = 3;
    }));
    // A rule set that no ruleset would use must not look like one in force.
    EXPECT_FALSE(encodes([](Bootstrap& r) { r.landlock = {{"/usr", 1}}; }));
    EXPECT_FALSE(encodes([](Bootstrap& r) { r.landlock_scoped = 1; }));
    EXPECT_FALSE(encodes([](Bootstrap& r) { r.landlock_ports = {{443, 2}}; }));
    EXPECT_FALSE(encodes([](Bootstrap& r) {
        r.landlock_abi = 7;
        r.landlock = {{"usr", 1}};
    }));
}

TEST(BootstrapRecord, IsReadWholeOrNotAtAll)
{
    const ByteVector bytes = *encode(Bootstrap{});
    ASSERT_TRUE(decode_bootstrap(bytes));
    for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
        const auto decoded = decode_bootstrap(std::span(bytes).first(cut));
        ASSERT_FALSE(decoded) << cut;
        EXPECT_EQ(decoded.error().error, WireError::truncated) << cut;
    }
}

TEST(WireErrors, BecomeErrorsAPersonCanRead)
{
    const ByteVector open = *encode(Open{.version = 4, .argv = {"/bin/true"}});
    const auto kind = kind_through_try(std::span(open).subspan(kHeaderSize));
    ASSERT_FALSE(kind);
    EXPECT_EQ(kind.error().code(), Code::corrupt);
    EXPECT_EQ(kind.error().message(),
              "guest protocol: version_mismatch: the peer speaks another protocol version "
              "(version, found 4)");
    EXPECT_EQ(Error(Failure{WireError::busy, "sessions"}).code(), Code::resource_exhausted);
    EXPECT_EQ(Error(Failure{WireError::refused, "uid"}).code(), Code::permission_denied);
    EXPECT_EQ(Error(Failure{WireError::not_ready, "port"}).code(), Code::unavailable);
}

TEST(WireErrors, KeepTheNumbersOfThePage)
{
    constexpr std::array<std::string_view, 10> kNames{
        "unknown",  "version_mismatch", "unknown_type",    "type_not_allowed",
        "too_long", "bad_payload",      "not_provisioned", "not_ready",
        "busy",     "refused"};
    for (std::uint16_t code = 0; code < kNames.size(); ++code) {
        EXPECT_EQ(to_string(WireError{code}), kNames.at(code));
    }
    EXPECT_EQ(to_string(RefusalCode{1}), "peer_refused");
    EXPECT_EQ(to_string(RefusalCode{19}), "absence_not_verified");
    EXPECT_EQ(to_string(RefusalCode{20}), "unknown");
}

TEST(Reader, ReportsTheFirstFailureAndReadsNoFurther)
{
    const ByteVector bytes = from_hex("02 00 00 00 07");
    Reader reader(bytes);
    bool flag = true;
    std::uint32_t number = 99;
    reader.boolean("flag", flag);
    reader.number("number", number);
    reader.finish();
    ASSERT_TRUE(reader.failed());
    EXPECT_STREQ(reader.failure().what, "flag");
    EXPECT_EQ(reader.failure().found, 2U);
    EXPECT_EQ(number, 0U);
}

TEST(Reader, ChecksALengthBeforeItAllocates)
{
    // 4 GiB announced: the ceiling refuses it although the bytes are not there either.
    const ByteVector bytes = from_hex("ff ff ff ff");
    Reader text_reader(bytes);
    std::string text;
    text_reader.text("text", text, 64);
    EXPECT_EQ(text_reader.failure().found, 0xFFFF'FFFFU);
    Reader blob_reader(bytes);
    ByteVector blob;
    blob_reader.blob("blob", blob, 64);
    EXPECT_TRUE(blob_reader.failed());
    EXPECT_EQ(blob.capacity(), 0U);
    // 65535 items announced, none there: no room is made for them.
    Reader list_reader(bytes);
    std::vector<std::uint64_t> items;
    list_reader.list("items", items, 65535, [](Reader& r, auto& item) { r.number("item", item); });
    EXPECT_TRUE(list_reader.failed());
    EXPECT_LE(items.capacity(), 1U);
}

TEST(Reader, TakesSignedNumbersInTwosComplement)
{
    const ByteVector bytes = from_hex("ff ff ff fe 80 00 00 00 00 00 00 00");
    Reader reader(bytes);
    std::int32_t small = 0;
    std::int64_t large = 0;
    reader.number("small", small);
    reader.number("large", large);
    reader.finish();
    EXPECT_FALSE(reader.failed());
    EXPECT_EQ(small, -2);
    EXPECT_EQ(large, std::numeric_limits<std::int64_t>::min());
}

}  // namespace sandbox::wire::test
