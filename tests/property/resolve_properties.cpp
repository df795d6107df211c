// SPDX-License-Identifier: Apache-2.0
// Laws 3 and 4 over random requests, bundles and hosts. RC_PARAMS="max_success=100000" runs more,
// RC_PARAMS="reproduce=…" (printed by a failure) runs one again.
#include <gtest/gtest.h>
// After gtest, which it needs and does not include.
#include <rapidcheck/gtest.h>

#include <clocale>
#include <filesystem>
#include <iterator>

#include "../unit/resolve/world.hpp"
#include "canon/json.hpp"
#include "permits.hpp"
#include "plan/codec.hpp"
#include "profile/profile.hpp"

namespace sandbox::property {
namespace {

using canon::Json;
using resolve::test::bind;
using resolve::test::World;

// Every bit of a mask is one change of a request; masks shrink well and print shortly.
using Edit = void (*)(profile::Profile&);
constexpr Edit kEdits[] = {
    [](profile::Profile& p) { p.network.mode = profile::NetworkMode::host; },
    [](profile::Profile& p) { p.rootfs.read_only = false; },
    [](profile::Profile& p) { p.rootfs.source = profile::DirRootfs{HostPath("/srv/root")}; },
    [](profile::Profile& p) { p.mounts.push_back(bind("/srv/data", "/work")); },
    [](profile::Profile& p) {
        p.mounts.push_back(bind("/srv/out", "/out"));
        p.mounts.back().read_only = false;
    },
    [](profile::Profile& p) { p.mounts.push_back(bind("/opt/tools", "/tools")); },
    [](profile::Profile& p) { p.masks.push_back({GuestPath("/work/secret")}); },
    [](profile::Profile& p) { p.resources.memory = Bytes{256ULL << 20}; },
    [](profile::Profile& p) { p.resources.cpus = MilliCpus{1500}; },
    [](profile::Profile& p) { p.resources.cpu_weight = 50; },
    [](profile::Profile& p) { p.resources.cpuset = "0-1"; },
    [](profile::Profile& p) { p.resources.pids = 64; },
    [](profile::Profile& p) { p.security.capabilities = {"CAP_CHOWN"}; },
    [](profile::Profile& p) { p.security.seccomp = profile::SeccompProfile::strict; },
    [](profile::Profile& p) { p.process.user = {0, 0}; },
    [](profile::Profile& p) { p.process.timeout = Millis{60'000}; },
    [](profile::Profile& p) { p.process.rlimits = {{"nofile", 512}}; },
    [](profile::Profile& p) { p.process.env = {{"LANG", "C.UTF-8"}}; },
    [](profile::Profile& p) { p.resources.io_weight = 100; },
    [](profile::Profile& p) { p.labels = {{"a", "b"}, {"c", "d"}}; }};

using Clause = void (*)(policy::Bundle&);
constexpr Clause kClauses[] = {
    [](policy::Bundle& b) { b.drivers = {{"oci", "microvm"}}; },
    [](policy::Bundle& b) { b.drivers = {{"oci"}}; },
    [](policy::Bundle& b) { b.network_modes = {{"none"}}; },
    [](policy::Bundle& b) { b.network_modes = {{"none", "host"}}; },
    [](policy::Bundle& b) { b.mount_sources = {{"/srv"}}; },
    [](policy::Bundle& b) { b.mount_sources = {{"/srv/data", "/srv/root", "/opt"}}; },
    [](policy::Bundle& b) { b.capabilities = std::set<std::string>{}; },
    [](policy::Bundle& b) { b.seccomp = {{"strict"}}; },
    [](policy::Bundle& b) { b.users = {{"1000:*"}}; },
    [](policy::Bundle& b) { b.max.memory = Bytes{256ULL << 20}; },
    [](policy::Bundle& b) { b.max.cpus = MilliCpus{1000}; },
    [](policy::Bundle& b) { b.max.pids = 512; },
    [](policy::Bundle& b) { b.max.pids = 100; },
    [](policy::Bundle& b) { b.max.ttl = Millis{60'000}; },
    [](policy::Bundle& b) { b.require.read_only_rootfs = true; },
    [](policy::Bundle& b) { b.require.cgroup_v2 = true; },
    [](policy::Bundle& b) { b.isolation_classes = {{"shared-kernel"}}; },
    [](policy::Bundle& b) { b.isolation = std::set<std::string>{}; }};

// Few bits at once: a request with every edit, or a bundle with every clause, is always denied.
std::vector<std::size_t> few(std::size_t count, std::size_t most)
{
    const auto size = *rc::gen::inRange<std::size_t>(0, most + 1);
    return *rc::gen::container<std::vector<std::size_t>>(size,
                                                         rc::gen::inRange<std::size_t>(0, count));
}

World any_world()
{
    World world = resolve::test::hello();
    std::vector<std::size_t> edits = few(std::size(kEdits), 6);
    // Each once: a second mount at one target would be a mistake of its own.
    std::sort(edits.begin(), edits.end());
    edits.erase(std::unique(edits.begin(), edits.end()), edits.end());
    for (const std::size_t edit : edits) kEdits[edit](world.profile);
    world.facts = resolve::test::host(*rc::gen::arbitrary<bool>() ? "v1" : "v2");
    return world;
}

policy::LocatedBundle any_bundle()
{
    policy::LocatedBundle out;
    out.bundle.name = "org";
    for (const std::size_t clause : few(std::size(kClauses), 2)) kClauses[clause](out.bundle);
    return out;
}

std::vector<policy::LocatedBundle> any_bundles()
{
    std::vector<policy::LocatedBundle> out;
    const auto count = *rc::gen::inRange<std::size_t>(0, 3);
    for (std::size_t i = 0; i < count; ++i) out.push_back(any_bundle());
    return out;
}

std::string any_fact(const World& world)
{
    const auto index = *rc::gen::inRange<std::size_t>(0, world.facts.size());
    return std::next(world.facts.begin(), static_cast<long>(index))->first;
}

// Actions at and around the edges of what the edits grant.
std::vector<Action> actions()
{
    std::vector<Action> out{ReachHostNetwork{}, UseCapability{"CAP_CHOWN"},
                            UseCapability{"CAP_SYS_ADMIN"}};
    for (const char* path : {"/work/a", "/work/secret", "/work/secret/b", "/out/a", "/tools/a",
                             "/usr/bin/env", "/etc/shadow", "/root/.ssh", "/srv/data/a"}) {
        out.push_back(ReadFile{path});
        out.push_back(WriteHostFile{path});
    }
    for (const std::uint64_t bytes : {1ULL << 20, 256ULL << 20, (256ULL << 20) + 1, 1ULL << 40}) {
        out.push_back(HoldMemory{bytes});
    }
    for (const std::uint32_t count : {1U, 64U, 65U, 512U, 513U, 100'000U}) {
        out.push_back(HaveProcesses{count});
        out.push_back(UseCpus{count * 10});
    }
    for (const char* kind : {"user", "pid", "mount", "ipc", "uts", "cgroup", "net"}) {
        out.push_back(SeeHost{kind});
    }
    return out;
}

const plan::ExecutionPlan* plan_of(const resolve::Resolution& resolution)
{
    return std::get_if<plan::ExecutionPlan>(&resolution);
}

// Everything `narrow` permits, `wide` permits; a denial permits nothing.
void expect_within(const resolve::Resolution& narrow, const resolve::Resolution& wide)
{
    const plan::ExecutionPlan* inner = plan_of(narrow);
    if (inner == nullptr) return;
    const plan::ExecutionPlan* outer = plan_of(wide);
    // A bool of its own: rapidcheck prints both sides, and cannot print a null pointer.
    const bool permitted = outer != nullptr;
    RC_ASSERT(permitted);
    for (const Action& action : actions()) {
        RC_ASSERT(!permits(inner->content(), action) || permits(outer->content(), action));
    }
}

RC_GTEST_PROP(Narrowing, AnotherBundleNeverPermitsMore, ())
{
    World world = any_world();
    world.bundles = any_bundles();
    World stricter = world;
    stricter.bundles.push_back(any_bundle());
    const auto wide = world.resolve();
    const auto narrow = stricter.resolve();
    const bool permitted_by_both = plan_of(narrow) != nullptr;
    const bool denied_by_both = plan_of(wide) == nullptr;
    RC_CLASSIFY(permitted_by_both);
    RC_CLASSIFY(denied_by_both);
    expect_within(narrow, wide);
}

RC_GTEST_PROP(Narrowing, DependsOnNeitherOrderNorRepetitionOfBundles, ())
{
    World world = any_world();
    world.bundles = any_bundles();
    World other = world;
    std::reverse(other.bundles.begin(), other.bundles.end());
    other.bundles.insert(other.bundles.end(), world.bundles.begin(), world.bundles.end());
    RC_ASSERT(resolve::test::verdict(world) == resolve::test::verdict(other));
    const auto first = world.resolve();
    const auto second = other.resolve();
    if (plan_of(first) != nullptr) RC_ASSERT(*plan_of(first) == *plan_of(second));
}

RC_GTEST_PROP(Narrowing, ALostCapabilityOfTheHostNeverPermitsMore, ())
{
    World world = any_world();
    world.bundles = any_bundles();
    World poorer = world;
    const std::string fact = any_fact(world);
    if (*rc::gen::arbitrary<bool>()) {
        poorer.lose(fact);
    } else {
        poorer.facts.erase(fact);
    }
    RC_LOG() << fact << "\n";
    expect_within(poorer.resolve(), world.resolve());
}

RC_GTEST_PROP(Narrowing, NoPlanSharesWhatItsProfileDidNotAskFor, ())
{
    const World world = any_world();
    const auto resolution = world.resolve();
    const plan::ExecutionPlan* plan = plan_of(resolution);
    const bool planned = plan != nullptr;
    RC_PRE(planned);
    const auto& content = plan->content();
    const bool host_network = world.profile.network.mode == profile::NetworkMode::host;
    RC_ASSERT(permits(content, ReachHostNetwork{}) == host_network);
    for (const char* kind : {"user", "pid", "mount", "ipc", "uts", "cgroup"}) {
        RC_ASSERT(!permits(content, SeeHost{kind}));
    }
    RC_ASSERT(!permits(content, UseCapability{"CAP_SYS_ADMIN"}));
    RC_ASSERT(!permits(content, HaveProcesses{world.profile.resources.pids + 1}));
    RC_ASSERT(!permits(content, ReadFile{"/work/secret"}) || world.profile.masks.empty());
    if (world.profile.resources.memory) {
        RC_ASSERT(!permits(content, HoldMemory{world.profile.resources.memory->count + 1}));
    }
}

RC_GTEST_PROP(Determinism, SameInputsGiveTheSameBytesInEveryLocaleAndFolder, ())
{
    World world = any_world();
    world.bundles = any_bundles();
    const auto first = world.resolve();
    const std::string locale = std::setlocale(LC_ALL, nullptr);
    const auto folder = std::filesystem::current_path();
    // Where a locale is not installed setlocale changes nothing; C.UTF-8 is always there.
    for (const char* other : {"C", "C.UTF-8", "de_DE.UTF-8", "tr_TR.UTF-8"}) {
        std::setlocale(LC_ALL, other);
        std::filesystem::current_path("/");
        const auto again = world.resolve();
        std::filesystem::current_path(folder);
        RC_ASSERT(resolve::test::verdict(first) == resolve::test::verdict(again));
        if (plan_of(first) == nullptr) continue;
        RC_ASSERT(plan_of(first)->canonical() == plan_of(again)->canonical());
        RC_ASSERT(plan_of(first)->digest() == plan_of(again)->digest());
    }
    std::setlocale(LC_ALL, locale.c_str());
}

// Tables of a profile and the lines within each, written in any order.
RC_GTEST_PROP(Determinism, TheOrderOfKeysInAProfileDoesNotMatter, ())
{
    const auto shuffled = [](std::vector<std::string> lines) {
        for (std::size_t i = lines.size(); i > 1; --i) {
            std::swap(lines[i - 1], lines[*rc::gen::inRange<std::size_t>(0, i)]);
        }
        std::string out;
        for (const std::string& line : lines) out += line + "\n";
        return out;
    };
    const auto text = [&] {
        return shuffled({"version = 1", "name = \"p\"", "isolation = \"sandbox\"",
                         "labels = { a = \"1\", b = \"2\" }"}) +
               shuffled(
                   {"[process]\n" + shuffled({"argv = [\"/bin/true\"]", "cwd = \"/work\"",
                                              "env = { A = \"1\", B = \"2\" }", "timeout = \"5s\"",
                                              "umask = \"0077\""}),
                    "[resources]\n" + shuffled({"memory = \"64MiB\"", "cpus = 0.5", "pids = 32",
                                                "cpuset = \"0-1\""}),
                    "[[mount]]\n" +
                        shuffled({"type = \"tmpfs\"", "target = \"/work\"", "size = \"1MiB\""}),
                    "[lifecycle]\n" + shuffled({"stop_timeout = \"2s\"", "autostart = true"})});
    };
    const auto canonical = [](const std::string& toml) {
        const auto parsed = profile::parse_profile(toml, "p.toml");
        if (!parsed.profile) return format(parsed.diagnostics.at(0));
        World world = resolve::test::hello();
        world.profile = parsed.profile->profile;
        world.where = parsed.profile->where;
        return resolve::test::planned(world).canonical();
    };
    const std::string first = text();
    const std::string second = text();
    RC_LOG() << first << "---\n" << second;
    RC_ASSERT(canonical(first) == canonical(second));
    RC_ASSERT(canonical(first).starts_with("{"));
}

RC_GTEST_PROP(PlanCodec, SurvivesARoundTrip, ())
{
    const auto resolution = any_world().resolve();
    const plan::ExecutionPlan* plan = plan_of(resolution);
    const bool planned = plan != nullptr;
    RC_PRE(planned);
    const std::string bytes = plan::encode_file(*plan).value();
    const auto back = plan::decode_file(bytes);
    RC_ASSERT(back.has_value());
    RC_ASSERT(back->content() == plan->content());
    RC_ASSERT(plan::encode_file(*back).value() == bytes);
}

RC_GTEST_PROP(PlanCodec, RefusesAFileInWhichAnyFieldWasChanged, ())
{
    const auto resolution = any_world().resolve();
    const plan::ExecutionPlan* plan = plan_of(resolution);
    const bool planned = plan != nullptr;
    RC_PRE(planned);
    const Json file = canon::parse(plan::encode_file(*plan).value()).value();
    const Json flat = file.flatten();
    const auto index = *rc::gen::inRange<std::size_t>(0, flat.size());
    const std::string path = std::next(flat.begin(), static_cast<long>(index)).key();
    Json changed = file;
    Json& value = changed[Json::json_pointer(path)];
    switch (value.type()) {
    case Json::value_t::string: value = value.get<std::string>() + "x"; break;
    case Json::value_t::boolean: value = !value.get<bool>(); break;
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned: value = value.get<std::uint64_t>() + 1; break;
    case Json::value_t::null: value = 1; break;
    default: value = "was empty"; break;
    }
    RC_LOG() << path << "\n";
    RC_ASSERT(!plan::decode_file(canon::serialize(changed).value() + "\n").has_value());
}

}  // namespace
}  // namespace sandbox::property
