// SPDX-License-Identifier: Apache-2.0
#include "samples.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <type_traits>

namespace sandbox::wire::test {

namespace {

constexpr auto kToGuest = Direction::to_guest;
constexpr auto kToHost = Direction::to_host;

// first, first+1, … so that an order mistake shows.
template <std::size_t N>
std::array<std::uint8_t, N> counting(std::uint8_t first)
{
    std::array<std::uint8_t, N> bytes{};
    for (std::size_t i = 0; i < N; ++i) bytes.at(i) = static_cast<std::uint8_t>(first + i);
    return bytes;
}

ByteVector bytes_of(std::string_view text)
{
    const auto view = std::as_bytes(std::span(text));
    return {view.begin(), view.end()};
}

template <class Variant, class M>
Message wrap(M message)
{
    return Message(Variant(std::move(message)));
}

void add_control(std::vector<Sample>& out)
{
    const auto add = [&out](std::string name, Direction direction, auto message) {
        out.push_back(
            {std::move(name), Port::control, direction, wrap<ControlMessage>(std::move(message))});
    };
    add("hello", kToGuest, Hello{kProtocolVersion, counting<16>(0x10), 0x0102030405060708, true});
    add("welcome", kToHost,
        Welcome{kProtocolVersion, "sandbox-init 0.1.0", "6.1.0-amd64", true,
                ServiceState::waiting_to_restart});
    add("provision", kToGuest,
        Provision{counting<32>(0x00),
                  counting<32>(0x40),
                  counting<32>(0x80),
                  "web-1",
                  1'700'000'000'000'000'000,
                  true,
                  {{"openai", "OPENAI_API_KEY", "sk-nonce-1"}, {"gh", "GH_TOKEN", "ghp_2"}}});
    add("provisioned", kToHost, Provisioned{});
    add("ready", kToGuest, Ready{7});
    add("ready_ack", kToHost, ReadyAck{});
    add("time_set", kToGuest, TimeSet{1'700'000'000'123'456'789});
    add("time_ack", kToHost, TimeAck{-42});
    add("rotate", kToGuest, Rotate{RotateKind::provider_key, "openai", bytes_of("sk-nonce-2")});
    add("rotated", kToHost, Rotated{RotateKind::service_token});
    add("stats_request", kToGuest, StatsRequest{});
    add("stats", kToHost, Stats{60'001, 524'288, 262'144, 1'250, 2, 1'048'576, 4'096, 3});
    add("poweroff", kToGuest, Poweroff{PoweroffReason::host_shutdown});
    add("poweroff_ack", kToHost, PoweroffAck{});
    add("fstrim", kToGuest, Fstrim{});
    add("fstrim_started", kToHost, FstrimStarted{});
    add("secret_variable", kToGuest,
        Secret{SecretPlace::variable, 1000, 1001, "API_TOKEN", bytes_of("t0ken")});
    add("secret_file", kToGuest,
        Secret{SecretPlace::file, 1000, 1001, "/run/secrets/key",
               bytes_of(std::string_view("a\0b\n", 4))});
    add("secret_kept", kToHost, SecretKept{});
    add("signal_session", kToGuest, SignalSession{"s7", 15});
    add("session_signaled", kToHost, SessionSignaled{true});
    add("error", kToHost, ErrorMessage{6, "provision first"});
}

void add_session(std::vector<Sample>& out)
{
    const auto add = [&out](std::string name, Direction direction, auto message) {
        out.push_back(
            {std::move(name), Port::session, direction, wrap<SessionMessage>(std::move(message))});
    };
    Open open;
    open.kind = SessionKind::service;
    open.uid = 1000;
    open.gid = 1001;
    open.groups = {27, 100};
    open.argv = {"/usr/bin/python3", "-c", "print('é')"};
    open.env = {{"LANG", "C.UTF-8"}, {"EMPTY", ""}};
    open.cwd = "/work";
    open.term = "xterm-256color";
    open.rows = 24;
    open.cols = 80;
    open.timeout_ms = 30'000;
    open.umask = 0022;
    open.rlimits = {{7, 1024}, {4, 0}};
    open.gate = true;
    open.stdio = SessionStdio::descriptors;
    add("open", kToGuest, open);
    Open smallest;
    smallest.argv = {"/bin/true"};
    add("open_smallest", kToGuest, smallest);
    Open copy;
    copy.kind = SessionKind::copy_in;
    copy.argv = {"/work/in", "4294967296", "named"};
    copy.stdio = SessionStdio::descriptors;
    add("open_copy_in", kToGuest, copy);
    copy.kind = SessionKind::copy_out;
    copy.argv = {"/work/out", "4294967296"};
    add("open_copy_out", kToGuest, copy);
    add("started", kToHost, Started{0x01020304});
    add("stdin", kToGuest, Stdin{bytes_of("input\n")});
    add("stdin_eof", kToGuest, StdinEof{});
    add("stdout", kToHost, Stdout{bytes_of(std::string_view("out\0\xFF", 5))});
    add("stderr", kToHost, Stderr{bytes_of("err")});
    add("resize", kToGuest, Resize{25, 132});
    add("signal", kToGuest, Signal{64});
    add("silent", kToHost, Silent{30'000});
    add("exit", kToHost, Exit{ExitOutcome::failed_to_start, 2});
    add("exit_negative", kToHost, Exit{ExitOutcome::exited, -1});
    add("confined", kToHost,
        Confined{12, 1000, 1001, {27, 100}, {1, 2, 3, 4, 5}, true, 2, 3, 7, {0, 1, 2}});
    add("go", kToGuest, Go{});
    add("close_output", kToGuest, CloseOutput{2});
    add("error", kToHost, ErrorMessage{8, "256 sessions are open"});
}

void add_guest_ports(std::vector<Sample>& out)
{
    const auto events = [&out](std::string name, EventMessage message) {
        out.push_back({std::move(name), Port::events, kToHost, Message(std::move(message))});
    };
    events("event_auth", EventAuth{kProtocolVersion, counting<32>(0x20)});
    events("heartbeat", Heartbeat{1, 30'000});
    events("service_state", ServiceStateEvent{2, ServiceState::exited, -9, 1});
    events("guest_state", GuestStateEvent{3, GuestEvent::network_down, 0xFFFF'FFFF'FFFF'FFFF});
    out.push_back(
        {"error", Port::events, kToGuest, wrap<EventMessage>(ErrorMessage{1, "guest 2, host 1"})});

    out.push_back({"net_auth", Port::network, kToHost,
                   wrap<NetworkMessage>(NetAuth{kProtocolVersion, counting<32>(0x60)})});
    out.push_back({"net_ready", Port::network, kToGuest, wrap<NetworkMessage>(NetReady{9})});
    out.push_back(
        {"packet", Port::network, kToHost, wrap<NetworkMessage>(Packet{bytes_of("E\x01packet")})});

    out.push_back({"bridge_open", Port::bridge, kToGuest,
                   wrap<BridgeMessage>(BridgeOpen{kProtocolVersion, 8080})});
    out.push_back({"bridge_ready", Port::bridge, kToHost, wrap<BridgeMessage>(BridgeReady{})});
    out.push_back({"error", Port::bridge, kToHost,
                   wrap<BridgeMessage>(ErrorMessage{7, "nothing listens on 8080"})});

    out.push_back({"agent_auth", Port::ssh_agent, kToHost,
                   wrap<AgentMessage>(AgentAuth{kProtocolVersion, counting<32>(0xA0)})});
    out.push_back({"agent_ready", Port::ssh_agent, kToGuest, wrap<AgentMessage>(AgentReady{})});
}

Bootstrap bootstrap()
{
    Bootstrap record;
    record.mode = BootMode::host_sandbox;
    record.channel = BootChannel::inherited_fd;
    record.channel_fd = 5;
    record.sandbox_id = "0123456789abcdef0123456789abcdef";
    record.hostname = "web-1";
    record.max_sessions = 256;
    record.permitted_ids = {{1000, 1000}, {0, 0}};
    record.permitted_groups = {27};
    record.capabilities = 0x0000'0000'0000'0400;
    record.landlock_abi = 7;
    record.landlock_handled_fs = 0xFFFF;
    record.landlock_handled_net = 3;
    record.landlock_scoped = 1;
    record.landlock = {{"/usr", 0x0D}, {"/work", 0xFFFF}};
    record.landlock_ports = {{443, 2}};
    record.bpf = bytes_of(std::string_view("\x06\0\0\0\0\0\xFF\x7F", 8));
    record.env = {{"PATH", "/usr/bin"}, {"HOME", "/work"}};
    record.rlimits = {{7, 1024}};
    record.stop_grace_ms = 10'000;
    return record;
}

MachineStep step_of(MachineStepKind kind, std::string source, std::string target)
{
    MachineStep step;
    step.kind = kind;
    step.source = std::move(source);
    step.target = std::move(target);
    return step;
}

Machine machine()
{
    Machine record;
    record.shares = {{"ro", true}, {"rw", false}};
    MachineStep root = step_of(MachineStepKind::root_tmpfs, "", "");
    root.size = 1U << 20;
    MachineStep bind = step_of(MachineStepKind::bind, "/shares/rw/0", "work");
    bind.access = MachineAccess::read_write;
    bind.ground = MachineGround::operators;
    MachineStep file = step_of(MachineStepKind::file, "", "etc/hosts");
    file.mode = 0644;
    file.uid = 1;
    file.gid = 2;
    file.content = "127.0.0.1 localhost\n";
    record.steps = {root, bind, file, step_of(MachineStepKind::seal_root, "", "")};
    record.masked = {"/proc/keys"};
    record.read_only = {"/proc/sys"};
    record.loopback = true;
    record.workload = {{"memory.max", "67108864"}, {"cpu.max", "50000 100000"}};
    record.control = {{"pids.max", "8"}};
    return record;
}

void add_mux(std::vector<Sample>& out)
{
    const auto add = [&out](std::string name, MuxMessage message) {
        out.push_back({std::move(name), Port::mux, kToHost, Message(std::move(message))});
    };
    add("mux_hello", MuxHello{kProtocolVersion, 65536});
    add("mux_open", MuxOpen{0x01020304, 5001, 262144, "s2"});
    add("mux_accept", MuxAccept{1, 65536});
    add("mux_data", MuxData{3, bytes_of("bytes")});
    add("mux_credit", MuxCredit{3, 32768});
    add("mux_eof", MuxEof{3});
    add("mux_reset", MuxReset{5, 8});
}

void add_init(std::vector<Sample>& out)
{
    const auto add = [&out](std::string name, Direction direction, InitMessage message) {
        out.push_back({std::move(name), Port::init, direction, Message(std::move(message))});
    };
    add("init_up", kToHost, InitUp{kProtocolVersion, 1});
    add("pass", kToGuest, Pass{5001, "s-0001", LeafKind::v1_tasks, 3});
    add("pass_control", kToGuest, Pass{5000, "", LeafKind::none, 0});
    add("pass_refused", kToHost, PassRefused{"s-0001", 8});
    add("init_log", kToHost, InitLog{"ignoring: hostname is taken"});
    add("session_opened", kToHost,
        SessionOpened{"s7", 12, SessionKind::pty, 1000, 1001, counting<32>(0xC0)});
    add("session_ended", kToHost, SessionEnded{"s7", ExitOutcome::signaled, 9});
    add("guest_faulty", kToHost, GuestFaulty{4, "DATA beyond credit"});
    add("guest_report", kToHost, GuestReport{{{"kernel.release", "6.12.0"}, {"pids.max", "64"}}});
    out.push_back({"bootstrap", Port::bootstrap, kToGuest, Message(BootstrapMessage(bootstrap()))});
    out.push_back({"machine", Port::bootstrap, kToGuest, Message(BootstrapMessage(machine()))});
}

HelperRequest request(HelperOp op)
{
    HelperRequest message;
    message.op = op;
    return message;
}

HelperResult result(HelperOp op)
{
    HelperResult message;
    message.op = op;
    return message;
}

void add_helper_requests(std::vector<Sample>& out)
{
    const auto add = [&out](std::string name, HelperRequest message) {
        out.push_back({std::move(name), Port::helper, kToGuest, Message(HelperMessage(message))});
    };
    add("request_probe", request(HelperOp::probe));
    auto create = request(HelperOp::create);
    create.id = counting<16>(1);
    create.disk_gib = 20;
    add("request_create", create);
    auto start = request(HelperOp::start);
    start.id = counting<16>(1);
    start.kernel = counting<32>(0x20);
    start.base = counting<32>(0x60);
    start.cpus = 2;
    start.memory_mib = 512;
    add("request_start", start);
    for (const auto& [name, op] :
         {std::pair{"request_pause", HelperOp::pause},
          std::pair{"request_resume", HelperOp::resume}, std::pair{"request_stop", HelperOp::stop},
          std::pair{"request_kill", HelperOp::kill},
          std::pair{"request_delete", HelperOp::remove}}) {
        auto simple = request(op);
        simple.id = counting<16>(1);
        add(name, simple);
    }
    add("request_inventory", request(HelperOp::inventory));
    auto image = request(HelperOp::image_add);
    image.digest = counting<32>(0x80);
    image.kind = ImageKind::base_raw;
    image.size = 1U << 30;
    add("request_image_add", image);
}

void add_helper_results(std::vector<Sample>& out)
{
    const auto add = [&out](std::string name, HelperMessage message) {
        out.push_back({std::move(name), Port::helper, kToHost, Message(std::move(message))});
    };
    auto probe = result(HelperOp::probe);
    probe.facts = {{"kvm", ProbeStatus::ok, "guest ran"}, {"jail", ProbeStatus::gap, ""}};
    add("result_probe", probe);
    auto create = result(HelperOp::create);
    create.uid = 200'001;
    add("result_create", create);
    auto start = result(HelperOp::start);
    start.pid = 4242;
    start.start_time = 987'654'321;
    start.endpoint = UnixPath{"/run/sandbox/x/v.sock"};
    add("result_start", start);
    for (const auto& [name, op] :
         {std::pair{"result_pause", HelperOp::pause}, std::pair{"result_resume", HelperOp::resume},
          std::pair{"result_stop", HelperOp::stop},
          std::pair{"result_image_add", HelperOp::image_add}}) {
        add(name, result(op));
    }
    for (const auto& [name, op] :
         {std::pair{"result_kill", HelperOp::kill}, std::pair{"result_delete", HelperOp::remove}}) {
        auto ended = result(op);
        ended.absences = {{AbsenceItem::jail, true}, {AbsenceItem::snapshot_files, false}};
        add(name, ended);
    }
    auto inventory = result(HelperOp::inventory);
    inventory.entries = {{counting<16>(1), InstanceState::paused, true, 4242, 99, UnixPath{"/v"}},
                         {counting<16>(9), InstanceState::unknown, false, 0, 0, counting<16>(5)}};
    add("result_inventory", inventory);
    add("refusal", HelperRefusal{RefusalCode::syscall_failed, 4, -17, "link: File exists"});
}

}  // namespace

std::vector<Sample> samples()
{
    std::vector<Sample> all;
    add_control(all);
    add_session(all);
    add_guest_ports(all);
    add_init(all);
    add_mux(all);
    all.push_back({"helper_hello", Port::helper, kToGuest, wrap<HelperMessage>(HelperHello{1})});
    all.push_back({"helper_welcome", Port::helper, kToHost,
                   wrap<HelperMessage>(HelperWelcome{1, "0.1.0", HelperEngine::hcs, "10.0"})});
    add_helper_requests(all);
    add_helper_results(all);
    return all;
}

std::string folder_of(Port port)
{
    switch (port) {
    case Port::init: return "init";
    case Port::bootstrap: return "bootstrap";
    case Port::helper: return "helper";
    case Port::mux: return "mux";
    default: return std::to_string(static_cast<unsigned>(port));
    }
}

ByteVector encode_any(const Message& message)
{
    const auto encoded = std::visit(
        [](const auto& on_port) {
            return std::visit(
                [](const auto& one) {
                    using M = std::remove_cvref_t<decltype(one)>;
                    constexpr bool kIsPacket = M::kType >= InitUp::kType &&
                                               M::kType <= GuestReport::kType;
                    if constexpr (kIsPacket) {
                        return encode_packet(one);
                    } else {
                        return encode(one);
                    }
                },
                on_port);
        },
        message);
    if (!encoded) {
        ADD_FAILURE() << encoded.error().message();
        return {};
    }
    return *encoded;
}

Decoded<Message> decode_any(Port port, Direction direction, Stage stage,
                            std::span<const std::byte> bytes)
{
    if (port == Port::init) return Message(TRY(decode_packet(direction, bytes)));
    if (port == Port::bootstrap && stage == Stage::first)
        return Message(BootstrapMessage(TRY(decode_bootstrap(bytes))));
    FrameDecoder decoder(port, direction, stage);
    auto frame = TRY(decoder.next(bytes));
    TRY_VOID(decoder.finish());
    if (!frame) return std::unexpected(Failure{WireError::truncated, "no frame"});
    EXPECT_TRUE(bytes.empty()) << "bytes behind the one frame";
    return decode_payload(port, direction, frame->type, frame->payload);
}

Stage stage_of(std::uint8_t type)
{
    const auto rows = message_table();
    const auto row = std::ranges::find(rows, type, &TypeInfo::type);
    return row != rows.end() && row->opens ? Stage::first : Stage::later;
}

std::uint8_t type_of(const Message& message)
{
    return std::visit(
        [](const auto& on_port) {
            return std::visit([](const auto& one) { return std::uint8_t{one.kType}; }, on_port);
        },
        message);
}

ByteVector from_hex(std::string_view text)
{
    ByteVector bytes;
    int high = -1;
    bool comment = false;
    for (const char c : text) {
        if (c == '\n') comment = false;
        if (c == '#') comment = true;
        if (comment || c == '\n' || c == ' ') continue;
        const int digit = c >= 'a' ? c - 'a' + 10 : c - '0';
        if (digit < 0 || digit > 15) ADD_FAILURE() << "not a hex digit: " << c;
        if (high < 0) {
            high = digit;
        } else {
            bytes.push_back(static_cast<std::byte>(high * 16 + digit));
            high = -1;
        }
    }
    EXPECT_EQ(high, -1) << "half a byte at the end";
    return bytes;
}

std::string to_hex(std::span<const std::byte> bytes)
{
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const auto value = std::to_integer<unsigned>(bytes[i]);
        if (i != 0) text += i % 16 == 0 ? '\n' : ' ';
        text += kDigits[value >> 4];
        text += kDigits[value & 15U];
    }
    return text + "\n";
}

ByteVector raw_frame(std::uint8_t type, std::uint32_t length, std::size_t payload)
{
    const HeaderBytes header = encode_header({type, length});
    ByteVector frame(header.begin(), header.end());
    frame.resize(kHeaderSize + payload);
    return frame;
}

}  // namespace sandbox::wire::test
