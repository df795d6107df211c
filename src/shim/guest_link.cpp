// SPDX-License-Identifier: Apache-2.0
#include "shim/guest_link.hpp"

#include <sys/random.h>
#include <sys/resource.h>

#include <cerrno>
#include <ctime>
#include <map>

#include "shim/secrets.hpp"
#include "sys/net/unix.hpp"
#include "sys/rlimit.hpp"

namespace sandbox::shim {

namespace {

constexpr std::size_t kNonceCount = 3;
constexpr Millis kClockPatience{2'000};  // of a boot, on a host where nothing is quick

Status fill_random(wire::Nonce& nonce)
{
    // Never short for up to 256 bytes once the pool is ready (getrandom(2)).
    if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) {
        return fail_errno("getrandom");
    }
    return {};
}

// 32 hex digits to the 16 bytes they spell. Requires: a valid sandbox id.
wire::Id16 id_bytes(const SandboxId& id)
{
    wire::Id16 bytes{};
    const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes.at(i) = static_cast<std::uint8_t>(digit(id.str()[2 * i]) * 16 +
                                                digit(id.str()[2 * i + 1]));
    }
    return bytes;
}

// Leaves behind the stream, in the order that `leaf_count` announces.
Status pass(int init_channel, const wire::Pass& message, int stream, std::span<const int> leaves)
{
    std::vector<int> fds{stream};
    fds.insert(fds.end(), leaves.begin(), leaves.end());
    const wire::ByteVector packet = TRY(wire::encode_packet(message));
    return sys::send_fds(init_channel,
                         {reinterpret_cast<const char*>(packet.data()), packet.size()}, fds);
}

wire::Pass session_message(plan::CgroupVersion version, const driver::SessionLeaf& leaf)
{
    wire::Pass message;
    message.port = static_cast<std::uint32_t>(wire::Port::session);
    message.session = leaf.name;
    // What kind of descriptor the leaves are: a v1 `tasks` file, or a v2 folder for
    // CLONE_INTO_CGROUP.
    message.leaf = leaf.joins.empty()                   ? wire::LeafKind::none
                   : version == plan::CgroupVersion::v2 ? wire::LeafKind::v2_dir
                   : version == plan::CgroupVersion::v1 ? wire::LeafKind::v1_tasks
                                                        : wire::LeafKind::none;
    message.leaf_count = static_cast<std::uint8_t>(leaf.joins.size());
    return message;
}

// What a guest's clock is set to.
std::uint64_t unix_time_ns()
{
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
           static_cast<std::uint64_t>(now.tv_nsec);
}

std::vector<int> numbers(const std::vector<sys::UniqueFd>& fds)
{
    std::vector<int> list;
    for (const sys::UniqueFd& fd : fds) list.push_back(fd.get());
    return list;
}

}  // namespace

Result<std::chrono::nanoseconds> set_clock(ControlStream& stream, sys::Deadline deadline)
{
    for (;;) {
        const std::int64_t began = sys::boottime_ns();
        wire::TimeSet time;
        time.time_ns = unix_time_ns();
        TRY(channel::ask<wire::TimeAck>(stream, time, deadline));
        const std::chrono::nanoseconds took{sys::boottime_ns() - began};
        // The next one finds its pages in memory and its processor awake.
        if (took <= kClockTolerance || deadline.passed()) return took;
    }
}

Result<wire::Nonce> rotate_event_nonce(ControlStream& stream, sys::Deadline deadline)
{
    wire::Nonce nonce{};
    TRY_VOID(fill_random(nonce));
    wire::Rotate rotate;
    rotate.kind = wire::RotateKind::event_nonce;
    const auto bytes = std::as_bytes(std::span(nonce));
    rotate.value.assign(bytes.begin(), bytes.end());
    const auto answer = TRY(channel::ask<wire::Rotated>(stream, rotate, deadline));
    if (answer.kind != rotate.kind)
        return fail(Code::corrupt, "sandbox-init rotated something else");
    return nonce;
}

Result<wire::Open> describe_process(const plan::ProcessPlan& process)
{
    wire::Open open;
    open.kind = wire::SessionKind::service;
    open.uid = process.uid;
    open.gid = process.gid;
    open.argv = process.argv;
    open.env.assign(process.env.begin(), process.env.end());
    open.cwd = process.cwd.str();
    open.umask = process.umask;
    // The child stops before exec until GO: evidence is read from it while nothing of the user's
    // runs.
    open.gate = true;
    open.stdio = wire::SessionStdio::descriptors;
    for (const auto& [name, value] : process.rlimits) {
        const auto resource = sys::rlimit_number(name);
        if (!resource) return fail(Code::internal, "the plan names no rlimit '" + name + "'");
        open.rlimits.push_back({static_cast<std::uint8_t>(*resource), value});
    }
    return open;
}

Status pass_session(int init_channel, plan::CgroupVersion version, const driver::SessionLeaf& leaf,
                    sys::UniqueFd stream)
{
    return pass(init_channel, session_message(version, leaf), stream.get(), numbers(leaf.joins));
}

Status pass_port(int init_channel, std::uint32_t port, sys::UniqueFd stream)
{
    wire::Pass message;
    message.port = port;
    return pass(init_channel, message, stream.get(), {});
}

Result<sys::UniqueFd> open_port(int init_channel, wire::Port port)
{
    sys::SocketPair pair = TRY(sys::socket_pair(sys::SocketType::stream));
    TRY_VOID(pass_port(init_channel, static_cast<std::uint32_t>(port), std::move(pair.second)));
    return std::move(pair.first);
}

Result<sys::UniqueFd> open_session(int init_channel, plan::CgroupVersion version,
                                   const driver::SessionLeaf& leaf)
{
    sys::SocketPair pair = TRY(sys::socket_pair(sys::SocketType::stream));
    TRY_VOID(pass_session(init_channel, version, leaf, std::move(pair.second)));
    return std::move(pair.first);
}

Result<Handshake> handshake(ControlStream& stream, const driver::Binding& binding,
                            const plan::ExecutionPlan& plan, const std::string& secret_store,
                            sys::Deadline deadline)
{
    Handshake done;
    wire::Hello hello;
    hello.instance_id = id_bytes(binding.id);
    // The guest's clock is ours: inside a VM nothing else is right (seed: clock is set from the
    // host).
    hello.host_time_ns = unix_time_ns();
    done.welcome = TRY(channel::ask<wire::Welcome>(stream, hello, deadline));

    wire::Provision provision;
    // One from the kernel for each use: a token of one port says nothing about another's.
    for (wire::Nonce* nonce : std::array<wire::Nonce*, kNonceCount>{
             &provision.event_nonce, &provision.egress_token, &provision.service_token}) {
        TRY_VOID(fill_random(*nonce));
    }
    provision.hostname = plan->network.hostname;
    // Read again: the answers before may have taken seconds.
    provision.time_ns = unix_time_ns();
    const std::int64_t began = sys::boottime_ns();
    TRY(channel::ask<wire::Provisioned>(stream, provision, deadline));
    const std::chrono::nanoseconds took{sys::boottime_ns() - began};
    // The clock was set somewhere in that time. A host too busy for it is no reason not to start.
    if (plan->microvm && took > kClockTolerance)
        static_cast<void>(set_clock(stream, sys::Deadline::after(kClockPatience)));
    done.event_nonce = provision.event_nonce;
    // Between PROVISIONED and READY: the files exist before anything of the workload can look.
    done.evidence = TRY(give_secrets(stream, plan, secret_store, deadline));

    wire::Ready ready;
    ready.policy_generation = binding.generation;
    TRY(channel::ask<wire::ReadyAck>(stream, ready, deadline));
    return done;
}

Result<wire::Confined> open_service(SessionStream& stream, const plan::ProcessPlan& process,
                                    std::array<int, 3> stdio, sys::Deadline deadline,
                                    const std::string& term)
{
    wire::Open open = TRY(describe_process(process));
    open.term = term;
    // The descriptors travel with the first byte of OPEN; the guest closes them after the fork.
    TRY_VOID(stream.send(open, stdio));
    auto reply = TRY(stream.receive(deadline));
    if (!reply) return fail(Code::unavailable, "sandbox-init closed the service session");
    if (const auto* confined = std::get_if<wire::Confined>(&*reply)) return *confined;
    if (const auto* refusal = std::get_if<wire::ErrorMessage>(&*reply)) {
        return fail(channel::to_error(*refusal));
    }
    // EXIT instead of CONFINED: the child could not put its controls in force, and has not run.
    if (const auto* exit = std::get_if<wire::Exit>(&*reply)) {
        return fail(Error::from_errno(exit->value, "confine", "the service session"));
    }
    return fail(Code::corrupt, "sandbox-init answered OPEN with another message");
}

Result<std::variant<wire::Started, StartFailure>> await_start(SessionStream& stream,
                                                              sys::Deadline deadline)
{
    using Outcome = std::variant<wire::Started, StartFailure>;
    auto reply = TRY(stream.receive(deadline));
    if (!reply) return fail(Code::unavailable, "sandbox-init closed the session after GO");
    if (const auto* started = std::get_if<wire::Started>(&*reply)) return Outcome(*started);
    // The program cannot be executed: an ordinary end (126 or 127), not a fault of ours.
    const auto* exit = std::get_if<wire::Exit>(&*reply);
    if (exit != nullptr && exit->outcome == wire::ExitOutcome::failed_to_start) {
        return Outcome(StartFailure{exit->value});
    }
    return fail(Code::corrupt, "sandbox-init answered GO with another message");
}

}  // namespace sandbox::shim
