// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>

#include "base/diagnostic.hpp"
#include "profile/check.hpp"
#include "profile/host.hpp"
#include "profile/profile.hpp"
#include "profile/protected.hpp"
#include "profile/reader.hpp"

// An overlay is a meet: every key it may name has an order, and only a step down is taken. A step
// up is refused and not ignored, because its writer believes that it holds.
namespace sandbox::profile {

namespace {

// An absent limit is the top of the order, whatever the overlay then says is lower.
template <class T, class Show>
void lower(Reader& table, const char* key, std::optional<T>& base, std::optional<T> wanted,
           Show show)
{
    if (!wanted) return;
    // Equal is a step down of length zero: an overlay may say again what the profile says.
    if (base && *wanted > *base) {
        table.refuse("overlay-widens", key,
                     show(*wanted) + " is more than the profile's " + show(*base),
                     "an overlay may only narrow");
        return;
    }
    base = wanted;
}

std::string show_number(std::uint64_t value) { return std::to_string(value); }
std::string show_bytes(Bytes value) { return format(value); }
std::string show_cpus(MilliCpus value) { return format(value); }

void overlay_process(Reader table, Process& process)
{
    // The order of a time is its length: ending sooner takes nothing from the host.
    lower(table, "timeout", process.timeout, table.duration("timeout"), format_duration);
    if (const auto umask = table.mode("umask", 0777)) {
        // A mask bit taken away is a permission given.
        if ((process.umask & ~*umask) != 0) {
            table.refuse("overlay-widens", "umask", "gives back permission bits the profile masks",
                         "an overlay may only mask more");
        } else {
            process.umask = *umask;
        }
    }
    Reader limits = table.table("rlimits");
    for (const std::string& name : limits.keys()) {
        const auto wanted = limits.integer(name);
        const auto base = process.rlimits.find(name);
        if (!wanted) continue;
        // Without a base there is nothing to compare with: the launch's default is not known here.
        if (base == process.rlimits.end()) {
            limits.refuse("overlay-widens", name, "the profile sets no such limit to lower",
                          "set it in the profile itself");
        } else if (*wanted > base->second) {
            limits.refuse("overlay-widens", name,
                          show_number(*wanted) + " is more than the profile's " +
                              show_number(base->second),
                          "an overlay may only narrow");
        } else {
            base->second = *wanted;
        }
    }
}

// What lies under a mount comes to light when the mount goes.
bool covers_something(const Profile& profile, const Mount& mount)
{
    // A tree of its own may have anything at any place; nobody has looked into it.
    if (!std::holds_alternative<HostRootfs>(profile.rootfs.source)) return true;
    // What the host's tree shows at these two is the host's; everywhere else is an empty skeleton.
    if (is_path_prefix("/usr", mount.target.str()) || is_path_prefix("/etc", mount.target.str())) {
        return true;
    }
    return std::any_of(profile.mounts.begin(), profile.mounts.end(), [&](const Mount& other) {
        return other.target != mount.target &&
               is_path_prefix(other.target.str(), mount.target.str());
    });
}

// The places of later mounts move down with them.
void forget_mount(Locations& where, std::size_t index)
{
    constexpr std::string_view kHead = "mount[";
    Locations moved;
    // Places are keyed by index, and "mount[10]" sorts before "mount[2]": each is looked at.
    auto at = where.lower_bound(std::string(kHead));
    while (at != where.end() && at->first.starts_with(kHead)) {
        const std::string_view key = at->first;
        const std::size_t close = key.find(']');
        std::size_t number = 0;
        std::from_chars(key.data() + kHead.size(), key.data() + close, number);
        if (number < index) {
            ++at;
            continue;
        }
        if (number > index) {
            // Collected apart: written at once they would be met again by the loop.
            moved[item_path("mount", number - 1) + std::string(key.substr(close + 1))] = at->second;
        }
        at = where.erase(at);
    }
    where.merge(moved);
}

void remove_mount(Reader& table, Profile& profile, std::vector<Mount>::iterator mount,
                  Locations& where)
{
    if (covers_something(profile, *mount)) {
        // A mask hides the place and what is under it: the narrower way to the same end.
        table.refuse("overlay-widens", "remove", "without this mount what it covers would be seen",
                     "mask the path instead: [[mask]] path = \"" + mount->target.str() + "\"");
        return;
    }
    forget_mount(where, static_cast<std::size_t>(mount - profile.mounts.begin()));
    profile.mounts.erase(mount);
}

void overlay_mount(Reader table, Profile& profile, Locations& where)
{
    const auto target = table.text("target");
    if (!target) return;
    // By place and not by index: the overlay does not know how the base was written.
    const auto mount = std::find_if(
        profile.mounts.begin(), profile.mounts.end(),
        [&](const Mount& candidate) { return candidate.target.str() == *target; });
    if (mount == profile.mounts.end()) {
        table.refuse("overlay-widens", "target",
                     "the profile has no mount at \"" + escaped(*target) + "\"",
                     "an overlay cannot add mounts");
        return;
    }
    // Only true has an effect; the schema refuses false, which would widen.
    if (table.flag("read_only").value_or(false)) mount->read_only = true;
    // A smaller tmpfs is narrower; a bind's size is the file system's.
    if (const auto size = table.size("size")) {
        if (mount->type == MountType::tmpfs) {
            lower(table, "size", mount->size, std::optional(*size), show_bytes);
        } else {
            table.refuse("contradiction", "size", "only a tmpfs has a size");
        }
    }
    // Last: `mount` is an iterator that is gone afterwards.
    if (table.flag("remove").value_or(false)) remove_mount(table, profile, mount, where);
}

void overlay_masks(const Reader& root, Profile& profile, Locations& where, Document& document)
{
    for (const Reader& item : root.tables("mask")) {
        // A bad path is check()'s business: the mask is one of the profile's own now.
        Mask mask{GuestPath(item.text("path").value_or(""))};
        // A mask that is there already changes nothing and is no mistake of the overlay's.
        const bool known = std::find(profile.masks.begin(), profile.masks.end(), mask) !=
                           profile.masks.end();
        if (known) continue;
        where[item_path("mask", profile.masks.size()) + ".path"] = locate(document.where,
                                                                          item.path("path"));
        profile.masks.push_back(std::move(mask));
    }
}

void overlay_deny(Reader& table, Profile& profile, Locations& where, Document& document)
{
    const std::vector<std::string> list = table.texts("deny");
    if (!list.empty() && profile.network.mode == NetworkMode::host) {
        // Nothing of ours filters the host's network, so a rule would promise what does not hold.
        table.refuse("overlay-widens", "deny",
                     "the profile has the host's network, which no rule holds",
                     "an overlay may say mode = \"none\"");
        return;
    }
    for (std::size_t i = 0; i < list.size(); ++i) {
        const std::string place = item_path(table.path("deny"), i);
        // The schema's complaint.
        if (list[i].empty()) continue;
        auto destination = parse_destination(list[i]);
        if (!destination) {
            table.refuse_at("bad-host", place, destination.error().message());
            continue;
        }
        // Without a network everything is denied already.
        if (profile.network.mode != NetworkMode::egress) continue;
        // A host that is denied is not reached by another protocol either.
        for (const Protocol protocol : {Protocol::tcp, Protocol::udp}) {
            NetworkRule rule{RuleAction::deny, destination->host, destination->port, protocol, {}};
            auto& rules = profile.network.rules;
            // Known already: no second rule, and no second place for it.
            if (std::find(rules.begin(), rules.end(), rule) != rules.end()) continue;
            where[item_path("network.rule", rules.size())] = locate(document.where, place);
            rules.push_back(std::move(rule));
        }
    }
}

void overlay_network(Reader table, Profile& profile, Locations& where, Document& document)
{
    // Everything goes: rules and ports of a network that is not there would be contradictions.
    if (table.text("mode") == "none") {
        profile.network = Network{};
        std::erase_if(where, [](const auto& item) {
            return item.first.starts_with("network.rule") ||
                   item.first.starts_with("network.publish");
        });
    }
    overlay_deny(table, profile, where, document);
}

void overlay_resources(Reader table, Resources& resources)
{
    constexpr std::uint32_t kDefaultWeight = 100;  // cgroup v2's, where nothing is written
    // With memory limited and no swap named, there is none: that is the base a swap is held to.
    if (table.has("swap") && resources.memory && !resources.swap) resources.swap = Bytes{0};
    lower(table, "memory", resources.memory, table.size("memory"), show_bytes);
    lower(table, "swap", resources.swap, table.size("swap"), show_bytes);
    lower(table, "disk", resources.disk, table.size("disk"), show_bytes);
    lower(table, "cpus", resources.cpus, table.cpus("cpus"), show_cpus);
    // A weight that is not written is the kernel's default, so asking for more than that widens.
    for (auto& [key, base] : {std::pair("cpu_weight", &resources.cpu_weight),
                              std::pair("io_weight", &resources.io_weight)}) {
        if (table.has(key) && !*base) *base = kDefaultWeight;
        lower(table, key, *base, table.small(key), show_number);
    }
    // Never absent: it has a default of its own.
    std::optional pids(resources.pids);
    lower(table, "pids", pids, table.small("pids"), show_number);
    resources.pids = *pids;
    const auto written = table.text("cpuset");
    // "" has its complaint already.
    if (!written || written->empty()) return;
    const auto cpuset = canonical_cpuset(*written);
    if (!cpuset) {
        table.refuse("bad-cpuset", "cpuset", "\"" + escaped(*written) + "\" is no list of CPUs",
                     "numbers up to 8191 and ranges, such as \"0-1,4\"");
    } else if (resources.cpuset && !cpuset_within(*cpuset, *resources.cpuset)) {
        // Sets have an order that is not total: neither of two may be within the other.
        table.refuse("overlay-widens", "cpuset",
                     *cpuset + " is not within the profile's " + *resources.cpuset,
                     "an overlay may only narrow");
    } else {
        resources.cpuset = cpuset;
    }
}

void overlay_security(Reader table, Security& security)
{
    // Only the step to "strict"; the schema has no other word here.
    if (table.text("seccomp") == "strict") security.seccomp = SeccompProfile::strict;
    // Absent is not empty: an empty list drops all of them.
    if (!table.has("capabilities")) return;
    std::vector<std::string> kept = table.texts("capabilities");
    for (std::size_t i = 0; i < kept.size(); ++i) {
        const auto& base = security.capabilities;
        if (std::find(base.begin(), base.end(), kept[i]) != base.end()) continue;
        table.refuse_at("overlay-widens", item_path(table.path("capabilities"), i),
                        "the profile has no \"" + escaped(kept[i]) + "\"",
                        "list the capabilities that remain");
    }
    // Also after a refusal: nothing of it is used then.
    std::erase_if(security.capabilities, [&](const std::string& name) {
        return std::find(kept.begin(), kept.end(), name) == kept.end();
    });
}

void overlay_lifecycle(Reader table, Lifecycle& lifecycle)
{
    if (const auto restart = table.choice<RestartPolicy>("restart")) {
        // The enumerators stand in this order: no, on-failure, always.
        if (*restart > lifecycle.restart) {
            table.refuse("overlay-widens", "restart",
                         "\"" + std::string(to_string(*restart)) +
                             "\" restarts more than the profile's \"" +
                             std::string(to_string(lifecycle.restart)) + "\"",
                         "an overlay may only narrow");
        } else {
            lifecycle.restart = *restart;
        }
    }
    if (lifecycle.restart == RestartPolicy::no) {
        // Nothing restarts, so a number would be a contradiction.
        lifecycle.max_restarts.reset();
    } else {
        lower(table, "max_restarts", lifecycle.max_restarts, table.small("max_restarts"),
              show_number);
    }
    std::optional stop(lifecycle.stop_timeout);
    lower(table, "stop_timeout", stop, table.duration("stop_timeout"), format_duration);
    lifecycle.stop_timeout = *stop;
    // Only false: an overlay cannot make a sandbox start by itself.
    if (table.flag("autostart") == false) lifecycle.autostart = false;
    lower(table, "ttl", lifecycle.ttl, table.duration("ttl"), format_duration);
    lower(table, "idle_timeout", lifecycle.idle_timeout, table.duration("idle_timeout"),
          format_duration);
}

// Values the overlay set are shown at the overlay's place, all others at the profile's.
void merge_places(Locations& where, const Document& document)
{
    for (const auto& [key, place] : document.where) {
        // Indices of the overlay's lists are not those of the profile: their places are set where
        // they are merged.
        const bool by_index = key.starts_with("mount") || key.starts_with("mask") ||
                              key.starts_with("network.deny") ||
                              key.starts_with("security.capabilities[");
        // A table's own place stays the profile's: most of its keys are still written there.
        if (key.find('.') != std::string::npos && !by_index) where[key] = place;
    }
}

}  // namespace

ParsedProfile apply_overlay(const LocatedProfile& base, std::string_view toml,
                            std::string_view file)
{
    ParsedProfile result;
    Document document = read_toml(toml, file);
    if (document.parsed) {
        check_document(document, "overlay", "profile");
        LocatedProfile narrowed = base;
        Profile& profile = narrowed.profile;
        // Before the checks below: a value that the overlay made impossible is shown in the
        // overlay.
        merge_places(narrowed.where, document);
        Reader root(document);
        overlay_process(root.table("process"), profile.process);
        if (root.table("rootfs").flag("read_only") == true) profile.rootfs.read_only = true;
        for (const Reader& item : root.tables("mount"))
            overlay_mount(item, profile, narrowed.where);
        overlay_masks(root, profile, narrowed.where, document);
        overlay_network(root.table("network"), profile, narrowed.where, document);
        overlay_resources(root.table("resources"), profile.resources);
        overlay_security(root.table("security"), profile.security);
        overlay_lifecycle(root.table("lifecycle"), profile.lifecycle);
        // A meet of two good values need not be one (a contradiction between keys), so all is
        // checked again.
        add_new(document.diagnostics, check(profile, narrowed.where));
        if (document.diagnostics.empty()) result.profile = std::move(narrowed);
    }
    result.diagnostics = std::move(document.diagnostics);
    sort(result.diagnostics);
    return result;
}

}  // namespace sandbox::profile
