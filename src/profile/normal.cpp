// SPDX-License-Identifier: Apache-2.0
#include "profile/normal.hpp"

#include <charconv>

#include "canon/json.hpp"
#include "profile/check.hpp"
#include "profile/host.hpp"
#include "profile/names.hpp"
#include "profile/profile.hpp"

namespace sandbox::profile {

using canon::Json;

namespace {

std::optional<std::uint32_t> parse_id(std::string_view text) noexcept
{
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    // "010" is a number to some parsers and octal to others.
    if (text.size() > 1 && text.front() == '0') return std::nullopt;
    // setresuid(2): -1 means "leave unchanged", so it can never be an id.
    if (value == UINT32_MAX) return std::nullopt;
    return value;
}

// Null and not left out: every key is present in the normal form.
Json or_null(const std::optional<Bytes>& value)
{
    return value ? Json(value->count) : Json(nullptr);
}
Json or_null(const std::optional<Millis>& value)
{
    return value ? Json(value->count()) : Json(nullptr);
}
Json or_null(const std::optional<std::uint32_t>& value)
{
    return value ? Json(*value) : Json(nullptr);
}
Json or_null(const std::optional<std::string>& value)
{
    return value ? Json(*value) : Json(nullptr);
}

Json process_json(const Process& process)
{
    return {{"argv", process.argv},
            {"idle", process.idle},
            {"env", Json(process.env)},
            {"cwd", process.cwd.str()},
            {"user", format_user(process.user)},
            {"umask", format_mode(process.umask)},
            {"terminal", process.terminal},
            {"timeout", or_null(process.timeout)},
            {"rlimits", Json(process.rlimits)}};
}

Json mounts_json(const std::vector<Mount>& mounts)
{
    Json list = Json::array();
    for (const Mount& mount : mounts) {
        Json item = {{"type", to_string(mount.type)}, {"source", mount.source},
                     {"target", mount.target.str()},  {"read_only", mount.read_only},
                     {"size", or_null(mount.size)},   {"mode", nullptr}};
        // Octal text, as a person writes it; 420 would mean 0644 to nobody.
        if (mount.mode) item["mode"] = format_mode(*mount.mode);
        list.push_back(std::move(item));
    }
    return list;
}

Json network_json(const Network& network)
{
    Json rules = Json::array();
    for (const NetworkRule& rule : network.rules) {
        rules.push_back({{"action", to_string(rule.action)},
                         {"host", rule.host},
                         {"port", rule.port ? Json(*rule.port) : Json(nullptr)},
                         {"protocol", to_string(rule.protocol)},
                         {"reason", rule.reason}});
    }
    Json publish = Json::array();
    for (const PublishedPort& port : network.publish) {
        publish.push_back({{"host", format_host_port(port.host_address, port.host_port)},
                           {"guest", port.guest_port}});
    }
    return {{"mode", to_string(network.mode)},
            {"rule", std::move(rules)},
            {"publish", std::move(publish)}};
}

Json resources_json(const Resources& resources)
{
    // Thousandths: JSON here knows integers only.
    Json cpus = nullptr;
    if (resources.cpus) cpus = resources.cpus->count;
    return {{"memory", or_null(resources.memory)},
            {"swap", or_null(resources.swap)},
            {"cpus", std::move(cpus)},
            {"cpu_weight", or_null(resources.cpu_weight)},
            {"cpuset", or_null(resources.cpuset)},
            {"io_weight", or_null(resources.io_weight)},
            {"pids", resources.pids},
            {"disk", or_null(resources.disk)}};
}

Json lifecycle_json(const Lifecycle& lifecycle)
{
    Json health = nullptr;
    if (lifecycle.health) {
        health = {{"argv", lifecycle.health->argv},
                  {"interval", lifecycle.health->interval.count()},
                  {"timeout", lifecycle.health->timeout.count()},
                  {"retries", lifecycle.health->retries}};
    }
    return {{"restart", to_string(lifecycle.restart)},
            {"backoff", lifecycle.backoff.count()},
            {"max_restarts", or_null(lifecycle.max_restarts)},
            {"stop_timeout", lifecycle.stop_timeout.count()},
            {"autostart", lifecycle.autostart},
            {"ttl", or_null(lifecycle.ttl)},
            {"idle_timeout", or_null(lifecycle.idle_timeout)},
            {"health", std::move(health)}};
}

// Readers of the normal form. They throw what nlohmann throws; from_json is the border. A value
// that a cast would bend is caught there too, by rendering again and comparing.

template <class Enum>
Enum enum_at(const Json& object, const char* key)
{
    // get_ref and not get: it throws for another type and copies nothing.
    const auto& text = object.at(key).get_ref<const std::string&>();
    const auto value = from_name<Enum>(text);
    if (!value) throw std::invalid_argument(std::string(key) + " = \"" + text + "\"");
    return *value;
}

template <class T>
T wanted(std::optional<T> value, const char* key)
{
    if (!value) throw std::invalid_argument(key);
    return *std::move(value);
}

template <class T>
std::optional<T> maybe(const Json& object, const char* key)
{
    const Json& value = object.at(key);
    if (value.is_null()) return std::nullopt;
    return value.get<T>();
}

std::optional<Bytes> maybe_bytes(const Json& object, const char* key)
{
    const auto value = maybe<std::uint64_t>(object, key);
    return value ? std::optional(Bytes{*value}) : std::nullopt;
}

std::optional<Millis> maybe_millis(const Json& object, const char* key)
{
    const auto value = maybe<std::int64_t>(object, key);
    return value ? std::optional(Millis{*value}) : std::nullopt;
}

Process read_process(const Json& json)
{
    Process process;
    process.argv = json.at("argv").get<std::vector<std::string>>();
    process.idle = json.at("idle").get<bool>();
    process.env = json.at("env").get<std::map<std::string, std::string>>();
    process.cwd = GuestPath(json.at("cwd").get<std::string>());
    process.user = wanted(parse_user(json.at("user").get_ref<const std::string&>()), "user");
    process.umask = wanted(parse_mode(json.at("umask").get_ref<const std::string&>(), 0777),
                           "umask");
    process.terminal = json.at("terminal").get<bool>();
    process.timeout = maybe_millis(json, "timeout");
    process.rlimits = json.at("rlimits").get<std::map<std::string, std::uint64_t>>();
    return process;
}

Mount read_mount(const Json& json)
{
    Mount mount;
    mount.type = enum_at<MountType>(json, "type");
    mount.source = json.at("source").get<std::string>();
    mount.target = GuestPath(json.at("target").get<std::string>());
    mount.read_only = json.at("read_only").get<bool>();
    // at() throws for a key that is not there, so "missing" and "null" stay apart.
    mount.size = maybe_bytes(json, "size");
    if (const auto mode = maybe<std::string>(json, "mode")) {
        mount.mode = wanted(parse_mode(*mode, 01777), "mode");
    }
    return mount;
}

Network read_network(const Json& json)
{
    Network network;
    network.mode = enum_at<NetworkMode>(json, "mode");
    for (const Json& item : json.at("rule")) {
        // A port of 70000 would be cut to 4464; rendering again shows it.
        network.rules.push_back(
            {enum_at<RuleAction>(item, "action"), item.at("host").get<std::string>(),
             maybe<std::uint16_t>(item, "port"), enum_at<Protocol>(item, "protocol"),
             item.at("reason").get<std::string>()});
    }
    for (const Json& item : json.at("publish")) {
        auto host = wanted(parse_host_port(item.at("host").get_ref<const std::string&>()), "host");
        network.publish.push_back(
            {std::move(host.address), host.port, item.at("guest").get<std::uint16_t>()});
    }
    return network;
}

Resources read_resources(const Json& json)
{
    Resources resources;
    resources.memory = maybe_bytes(json, "memory");
    resources.swap = maybe_bytes(json, "swap");
    if (const auto cpus = maybe<std::uint32_t>(json, "cpus")) resources.cpus = MilliCpus{*cpus};
    resources.cpu_weight = maybe<std::uint32_t>(json, "cpu_weight");
    resources.cpuset = maybe<std::string>(json, "cpuset");
    resources.io_weight = maybe<std::uint32_t>(json, "io_weight");
    resources.pids = json.at("pids").get<std::uint32_t>();
    resources.disk = maybe_bytes(json, "disk");
    return resources;
}

Lifecycle read_lifecycle(const Json& json)
{
    Lifecycle lifecycle;
    lifecycle.restart = enum_at<RestartPolicy>(json, "restart");
    lifecycle.backoff = Millis(json.at("backoff").get<std::int64_t>());
    lifecycle.max_restarts = maybe<std::uint32_t>(json, "max_restarts");
    lifecycle.stop_timeout = Millis(json.at("stop_timeout").get<std::int64_t>());
    lifecycle.autostart = json.at("autostart").get<bool>();
    lifecycle.ttl = maybe_millis(json, "ttl");
    lifecycle.idle_timeout = maybe_millis(json, "idle_timeout");
    if (const Json& health = json.at("health"); !health.is_null()) {
        lifecycle.health = Health{health.at("argv").get<std::vector<std::string>>(),
                                  Millis(health.at("interval").get<std::int64_t>()),
                                  Millis(health.at("timeout").get<std::int64_t>()),
                                  health.at("retries").get<std::uint32_t>()};
    }
    return lifecycle;
}

Profile read_profile_json(const Json& json)
{
    Profile profile;
    profile.name = json.at("name").get<std::string>();
    profile.labels = json.at("labels").get<std::map<std::string, std::string>>();
    profile.isolation = enum_at<Isolation>(json, "isolation");
    if (!json.at("driver").is_null()) profile.driver = enum_at<Driver>(json, "driver");
    profile.process = read_process(json.at("process"));
    // Each table by its own reader, in the order of docs; nothing depends on the order.
    const Json& rootfs = json.at("rootfs");
    profile.rootfs = wanted(parse_rootfs(rootfs.at("source").get_ref<const std::string&>()),
                            "rootfs.source");
    profile.rootfs.read_only = rootfs.at("read_only").get<bool>();
    for (const Json& item : json.at("mount")) profile.mounts.push_back(read_mount(item));
    for (const Json& item : json.at("mask")) {
        profile.masks.push_back({GuestPath(item.at("path").get<std::string>())});
    }
    profile.network = read_network(json.at("network"));
    profile.resources = read_resources(json.at("resources"));
    profile.security.seccomp = enum_at<SeccompProfile>(json.at("security"), "seccomp");
    profile.security.capabilities =
        json.at("security").at("capabilities").get<std::vector<std::string>>();
    profile.lifecycle = read_lifecycle(json.at("lifecycle"));
    for (const auto& [name, value] : json.at("secrets").items()) {
        Secret secret{name, maybe<std::string>(value, "env"), std::nullopt};
        if (const auto file = maybe<std::string>(value, "file")) secret.file = GuestPath(*file);
        profile.secrets.push_back(std::move(secret));
    }
    profile.microvm.cpus = maybe<std::uint32_t>(json.at("microvm"), "cpus");
    profile.microvm.memory = maybe_bytes(json.at("microvm"), "memory");
    return profile;
}

}  // namespace

std::string format_user(User user)
{
    return std::to_string(user.uid) + ":" + std::to_string(user.gid);
}

std::optional<User> parse_user(std::string_view text) noexcept
{
    const std::size_t colon = text.find(':');
    // One number is both: what most containers do, and no name service is asked.
    const auto uid = parse_id(text.substr(0, colon));
    if (!uid) return std::nullopt;
    if (colon == std::string_view::npos) return User{*uid, *uid};
    const auto gid = parse_id(text.substr(colon + 1));
    if (!gid) return std::nullopt;
    return User{*uid, *gid};
}

std::string format_mode(std::uint32_t mode)
{
    std::string text(4, '0');
    // From the last digit on; what does not fit four digits cannot be here (parse_mode).
    for (std::size_t i = 4; i-- > 0; mode >>= 3) text[i] = static_cast<char>('0' + (mode & 7U));
    return text;
}

std::optional<std::uint32_t> parse_mode(std::string_view text, std::uint32_t most) noexcept
{
    // "00022" would be the same mode by another text.
    constexpr std::size_t kMostDigits = 4;
    if (text.empty() || text.size() > kMostDigits) return std::nullopt;
    std::uint32_t value = 0;
    // Not from_chars: it would take fewer than all characters.
    for (const char c : text) {
        if (c < '0' || c > '7') return std::nullopt;
        value = value << 3 | static_cast<std::uint32_t>(c - '0');
    }
    if (value > most) return std::nullopt;
    return value;
}

std::string format_rootfs(const Rootfs& rootfs)
{
    if (const auto* dir = std::get_if<DirRootfs>(&rootfs.source)) return "dir:" + dir->path.str();
    if (const auto* image = std::get_if<ImageRootfs>(&rootfs.source)) {
        return "image:" + image->reference;
    }
    return "host";
}

std::optional<Rootfs> parse_rootfs(std::string_view text)
{
    Rootfs rootfs;
    // The default Rootfs is the host's.
    if (text == "host") return rootfs;
    if (text.starts_with("dir:")) {
        rootfs.source = DirRootfs{HostPath(std::string(text.substr(4)))};
        return rootfs;
    }
    if (text.starts_with("image:")) {
        rootfs.source = ImageRootfs{std::string(text.substr(6))};
        return rootfs;
    }
    return std::nullopt;
}

std::string format_host_port(const std::string& address, std::uint16_t port)
{
    // As in URLs (RFC 3986, section 3.2.2): the port's colon must be the only one.
    const bool brackets = address.find(':') != std::string::npos;
    return (brackets ? "[" + address + "]" : address) + ":" + std::to_string(port);
}

std::optional<HostPort> parse_host_port(std::string_view text)
{
    const auto destination = parse_destination(text);
    // A name would be bound to what it resolves to at that moment; only addresses are published.
    if (!destination || !destination->port || !canonical_ip(destination->host)) return std::nullopt;
    return HostPort{destination->host, *destination->port};
}

Json to_json(const Profile& profile)
{
    Json masks = Json::array();
    for (const Mask& mask : profile.masks) masks.push_back({{"path", mask.path.str()}});
    // A list that is sorted by name becomes an object: a name is there once.
    Json secrets = Json::object();
    for (const Secret& secret : profile.secrets) {
        Json file = nullptr;
        if (secret.file) file = secret.file->str();
        secrets[secret.name] = {{"env", or_null(secret.env)}, {"file", std::move(file)}};
    }
    Json driver = nullptr;
    if (profile.driver) driver = to_string(*profile.driver);
    return {
        // Of the profile format, as in the TOML file.
        {"version", 1},
        {"name", profile.name},
        {"labels", Json(profile.labels)},
        {"isolation", to_string(profile.isolation)},
        {"driver", std::move(driver)},
        {"process", process_json(profile.process)},
        {"rootfs",
         {{"source", format_rootfs(profile.rootfs)}, {"read_only", profile.rootfs.read_only}}},
        {"mount", mounts_json(profile.mounts)},
        {"mask", std::move(masks)},
        {"network", network_json(profile.network)},
        {"resources", resources_json(profile.resources)},
        {"security",
         {{"seccomp", to_string(profile.security.seccomp)},
          {"capabilities", profile.security.capabilities}}},
        {"lifecycle", lifecycle_json(profile.lifecycle)},
        {"secrets", std::move(secrets)},
        {"microvm",
         {{"cpus", or_null(profile.microvm.cpus)}, {"memory", or_null(profile.microvm.memory)}}}};
}

Result<Profile> from_json(const Json& json)
{
    Profile profile;
    try {
        profile = read_profile_json(json);
    } catch (const std::exception& error) {
        // nlohmann's exceptions, std::invalid_argument and out_of_range: all of them mean that the
        // document is wrong.
        return fail(Code::corrupt, std::string("not a profile in normal form: ") + error.what());
    }
    // Catches unknown keys, another version, numbers out of range and non-canonical spellings, all
    // at once: the normal form has one spelling of everything.
    if (to_json(profile) != json) {
        return fail(Code::corrupt, "not a profile in normal form: it would be written differently");
    }
    // The same gate as for TOML: a plan file is no way around it.
    const std::vector<Diagnostic> flaws = check(profile, {});
    if (!flaws.empty()) {
        return fail(Code::invalid_argument, flaws.front().key + ": " + flaws.front().message);
    }
    return profile;
}

}  // namespace sandbox::profile
