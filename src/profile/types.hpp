// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/strong.hpp"
#include "base/units.hpp"

// The typed profile: what a TOML file says, defaults filled in, nothing of the host. Values only;
// equal profiles have equal normal forms. Durations are milliseconds, sizes bytes, CPUs
// thousandths; ids are numeric (a static program has no usable name service).
namespace sandbox::profile {

// The order of enumerators is that of the names in names.cpp.
enum class Isolation { microvm, sandbox };
enum class Driver { oci, microvm, native };
enum class MountType { bind, volume, tmpfs };
enum class NetworkMode { none, egress, host };
enum class RuleAction { allow, deny };
enum class Protocol { tcp, udp };
enum class SeccompProfile { standard, strict };  // spelled "default" and "strict"
// From the least to the most: an overlay may only go to the left.
enum class RestartPolicy { no, on_failure, always };
// From the least to the most that a change costs: nothing, the next start, a new sandbox.
enum class ChangeClass { live, next_start, replace };

std::string_view to_string(Isolation value) noexcept;
std::string_view to_string(Driver value) noexcept;
std::string_view to_string(MountType value) noexcept;
std::string_view to_string(NetworkMode value) noexcept;
std::string_view to_string(RuleAction value) noexcept;
std::string_view to_string(Protocol value) noexcept;
std::string_view to_string(SeccompProfile value) noexcept;
std::string_view to_string(RestartPolicy value) noexcept;
std::string_view to_string(ChangeClass value) noexcept;

// Not 0: whoever says nothing does not get root.
struct User {
    std::uint32_t uid = 1000;
    std::uint32_t gid = 1000;
    auto operator<=>(const User&) const = default;
};

struct Process {
    std::vector<std::string> argv;  // empty exactly when idle
    bool idle = false;
    std::map<std::string, std::string> env;
    GuestPath cwd{"/"};
    User user;
    // Permission bits that files are made without, umask(2).
    std::uint32_t umask = 0022;
    // A pseudo-terminal of ours as its three standard streams.
    bool terminal = false;
    // Of the main process, from its start.
    std::optional<Millis> timeout;
    std::map<std::string, std::uint64_t> rlimits;  // "nofile" -> 1024; as getrlimit(2), lower case
    bool operator==(const Process&) const = default;
};

// The host's own /usr, read-only, with a skeleton of ours around it.
struct HostRootfs {
    bool operator==(const HostRootfs&) const = default;
};
// A root file system that is unpacked somewhere on this host.
struct DirRootfs {
    HostPath path;
    bool operator==(const DirRootfs&) const = default;
};
// A reference is kept as written; who resolves it says which digest it was.
struct ImageRootfs {
    std::string reference;
    bool operator==(const ImageRootfs&) const = default;
};

struct Rootfs {
    std::variant<HostRootfs, DirRootfs, ImageRootfs> source;
    bool read_only = true;
    bool operator==(const Rootfs&) const = default;
};

struct Mount {
    MountType type = MountType::bind;
    std::string source;  // bind: absolute host path; volume: name; tmpfs: empty
    GuestPath target;
    bool read_only = true;  // the default grants less; a tmpfs is writable unless said
    std::optional<Bytes> size;  // tmpfs only
    std::optional<std::uint32_t> mode;  // tmpfs only, permission bits
    bool operator==(const Mount&) const = default;
};

// A place that is shown empty, whatever is there.
struct Mask {
    GuestPath path;
    bool operator==(const Mask&) const = default;
};

// "api.example.com:443", "*.cdn.example.net:443", "internal.example.org:*", "10.0.0.1:53".
struct NetworkRule {
    RuleAction action = RuleAction::allow;
    std::string host;  // lower-case A-label name, "*.name", or an IP literal
    std::optional<std::uint16_t> port;  // nothing: every port
    Protocol protocol = Protocol::tcp;
    std::string reason;
    bool operator==(const NetworkRule&) const = default;
};

// A port of this host that leads to one inside; TCP.
struct PublishedPort {
    std::string host_address;  // IP literal
    std::uint16_t host_port = 0;
    std::uint16_t guest_port = 0;
    bool operator==(const PublishedPort&) const = default;
};

struct Network {
    NetworkMode mode = NetworkMode::none;
    std::vector<NetworkRule> rules;  // allow, deny and rule tables, in the order written
    std::vector<PublishedPort> publish;
    bool operator==(const Network&) const = default;
};

// Nothing means no limit, except where a number stands.
struct Resources {
    std::optional<Bytes> memory;
    std::optional<Bytes> swap;  // on top of memory; unset with memory set means 0
    std::optional<MilliCpus> cpus;
    std::optional<std::uint32_t> cpu_weight;  // 1..10000, cgroup v2 scale
    std::optional<std::string> cpuset;  // canonical list "0-1,4"
    std::optional<std::uint32_t> io_weight;  // 1..10000
    // Enough for a build; a fork bomb ends there.
    std::uint32_t pids = 512;
    // No driver enforces it: such a profile is denied.
    std::optional<Bytes> disk;
    bool operator==(const Resources&) const = default;
};

// The strict profile permits fewer system calls; neither can be turned off.
struct Security {
    SeccompProfile seccomp = SeccompProfile::standard;
    std::vector<std::string> capabilities;  // "CAP_NET_BIND_SERVICE", sorted, unique
    bool operator==(const Security&) const = default;
};

// A command inside; exit status 0 is healthy. Unhealthy after `retries` failures in a row.
struct Health {
    std::vector<std::string> argv;
    Millis interval{10'000};
    Millis timeout{2'000};
    std::uint32_t retries = 3;
    bool operator==(const Health&) const = default;
};

struct Lifecycle {
    RestartPolicy restart = RestartPolicy::no;
    // Before the first restart; it doubles then.
    Millis backoff{1'000};
    std::optional<std::uint32_t> max_restarts;
    // Between TERM and KILL; 0: KILL at once.
    Millis stop_timeout{10'000};
    // At the daemon's start.
    bool autostart = false;
    // ttl: of the sandbox as a whole; idle_timeout: without sessions and requests.
    std::optional<Millis> ttl;
    std::optional<Millis> idle_timeout;
    std::optional<Health> health;
    bool operator==(const Lifecycle&) const = default;
};

// [secrets] NAME = { env = "TOKEN" } or { file = "/run/secrets/token" }: names only, never values.
struct Secret {
    std::string name;
    std::optional<std::string> env;
    std::optional<GuestPath> file;
    bool operator==(const Secret&) const = default;
};

// Of the machine; nothing: the operator's, or the driver's own.
struct MicrovmSizes {
    std::optional<std::uint32_t> cpus;
    std::optional<Bytes> memory;
    bool operator==(const MicrovmSizes&) const = default;
};

struct Profile {
    std::string name;
    std::map<std::string, std::string> labels;
    Isolation isolation = Isolation::microvm;
    // Nothing: the operator's default for that isolation.
    std::optional<Driver> driver;
    Process process;
    Rootfs rootfs;
    std::vector<Mount> mounts;
    std::vector<Mask> masks;
    Network network;
    Resources resources;
    Security security;
    Lifecycle lifecycle;
    std::vector<Secret> secrets;  // sorted by name
    MicrovmSizes microvm;

    bool operator==(const Profile&) const = default;
};

// Where each key was written, by key path ("mount[0].source"): diagnostics and denials point there.
// Keys that were not written are not in it; see locate() in check.hpp.
using Locations = std::map<std::string, SourceLocation>;

struct LocatedProfile {
    Profile profile;
    Locations where;
};

// How a file's text is read. `known`: this very text was found good before, by this very schema;
// what follows the schema is checked all the same.
enum class Schema { check, known };

}  // namespace sandbox::profile
