// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "canon/json.hpp"
#include "driver/sources.hpp"
#include "fixture.hpp"
#include "sys/seccomp/compile.hpp"
#include "wire/wire.hpp"

namespace sandbox::driver::test {
namespace {

oci::OciArtifact compiled(const plan::PlanContent& content)
{
    auto artifact = oci::compile(sealed(content), sample_binding());
    if (!artifact) ADD_FAILURE() << artifact.error().message();
    return artifact ? std::move(*artifact) : oci::OciArtifact{};
}

std::string refusal(const plan::PlanContent& content)
{
    const auto artifact = oci::compile(sealed(content), sample_binding());
    return artifact ? "" : artifact.error().message();
}

template <class Step>
std::vector<Step> steps_of(const oci::OciArtifact& artifact)
{
    std::vector<Step> list;
    for (const auto& step : artifact.steps)
        if (const auto* one = std::get_if<Step>(&step)) list.push_back(*one);
    return list;
}

wire::Bootstrap bootstrap_of(const oci::OciArtifact& artifact)
{
    auto record = wire::decode_bootstrap(std::as_bytes(std::span(artifact.bootstrap)));
    if (!record) ADD_FAILURE() << record.error().what;
    return record ? std::move(*record) : wire::Bootstrap{};
}

// The filters have tests and digests of their own: here they stand for themselves, so that a new
// rule does not touch these files.
std::string readable(const oci::OciArtifact& artifact)
{
    auto json = canon::parse(*oci::render(artifact)).value();
    json["config"]["annotations"]["run.oci.seccomp_bpf_data"] = "(outer filter)";
    json["bootstrap"] = without_filter(artifact.bootstrap);
    json.erase("config_digest");
    return json.dump(1) + "\n";
}

}  // namespace

TEST(OciCompile, GivesTheSameBytesTwice)
{
    EXPECT_EQ(compiled(full_content()), compiled(full_content()));
}

TEST(OciCompile, MatchesItsGoldenForAPlainPlan)
{
    expect_golden("plain", readable(compiled(plain_content())));
}

TEST(OciCompile, MatchesItsGoldenForAFullPlan)
{
    expect_golden("full", readable(compiled(full_content())));
}

// Law 1: a field that changes nothing would be a field that enforces nothing.
TEST(OciCompile, ChangesTheArtifactWithEveryFieldOfThePlan)
{
    const oci::OciArtifact before = compiled(full_content());
    for (const Mutation& mutation : mutations()) {
        plan::PlanContent content = full_content();
        mutation.change(content);
        const auto after = oci::compile(sealed(content), sample_binding());
        if (after) {
            EXPECT_NE(before, *after) << mutation.name << " is ignored";
        }
    }
}

TEST(OciCompile, ChangesTheArtifactWithTheBinding)
{
    const auto plan = sealed(full_content());
    Binding other = sample_binding();
    other.id_base += 65536;
    EXPECT_NE(*oci::compile(plan, sample_binding()), *oci::compile(plan, other));
}

TEST(OciCompile, RefusesWhatItDoesNotExpress)
{
    plan::PlanContent content = plain_content();
    content.driver = profile::Driver::microvm;
    EXPECT_NE(refusal(content).find("another driver"), std::string::npos);
    content = plain_content();
    content.network.mode = profile::NetworkMode::egress;
    EXPECT_NE(refusal(content).find("egress"), std::string::npos);
    content = plain_content();
    content.security.namespaces.pop_back();
    EXPECT_NE(refusal(content).find("namespaces"), std::string::npos);
    content = plain_content();
    content.rootfs.kind = "image";
    EXPECT_NE(refusal(content).find("image"), std::string::npos);
    content = plain_content();
    content.mounts = {{profile::MountType::volume, HostPath("v"), GuestPath("/v"), false,
                       plan::Ownership::overflow, std::nullopt, 0}};
    EXPECT_NE(refusal(content).find("volumes"), std::string::npos);
    content = plain_content();
    content.facts["kernel.arch"].value = "riscv64";
    EXPECT_NE(refusal(content).find("riscv64"), std::string::npos);
}

TEST(OciCompile, RefusesAWritableBindForRoot)
{
    plan::PlanContent content = full_content();
    content.process.uid = 0;
    EXPECT_NE(refusal(content).find("user 0"), std::string::npos);
}

TEST(OciCompile, NeverMapsTheHostsRoot)
{
    const auto config = canon::parse(compiled(plain_content()).config_json).value();
    for (const char* map : {"uidMappings", "gidMappings"}) {
        ASSERT_EQ(config["linux"][map].size(), 1U);
        EXPECT_EQ(config["linux"][map][0]["hostID"], 0x20000000);
        EXPECT_EQ(config["linux"][map][0]["size"], 65536);
    }
}

TEST(OciCompile, AsksForNoCgroupNamespaceAndNoHooks)
{
    const auto config = canon::parse(compiled(plain_content()).config_json).value();
    std::set<std::string> kinds;
    for (const auto& space : config["linux"]["namespaces"]) kinds.insert(space["type"]);
    EXPECT_EQ(kinds, (std::set<std::string>{"ipc", "mount", "network", "pid", "user", "uts"}));
    EXPECT_FALSE(config.contains("hooks"));
    EXPECT_FALSE(config["linux"].contains("cgroupsPath"));
    EXPECT_FALSE(config["linux"].contains("resources"));
    EXPECT_EQ(config["annotations"].size(), 1U);
    EXPECT_EQ(config["process"]["noNewPrivileges"], true);
    EXPECT_EQ(config["root"]["path"], "rootfs");
}

TEST(OciCompile, KeepsTheHostsNetworkOnlyWhereThePlanSaysSo)
{
    plan::PlanContent content = plain_content();
    content.network.mode = profile::NetworkMode::host;
    std::erase(content.security.namespaces, "net");
    const auto artifact = compiled(content);
    EXPECT_EQ(artifact.config_json.find("\"network\""), std::string::npos);
    EXPECT_EQ(bootstrap_of(artifact).landlock_scoped, 0U) << "ABI 4 knows no scopes";
    content.security.landlock_abi = 6;
    EXPECT_NE(bootstrap_of(compiled(content)).landlock_scoped, 0U);
}

TEST(OciCompile, GivesPidOneFourCapabilitiesAndTheWorkloadsOwn)
{
    const auto config = canon::parse(compiled(full_content()).config_json).value();
    const canon::Json wanted = {"CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETGID", "CAP_SETPCAP",
                                "CAP_SETUID"};
    const auto& caps = config["process"]["capabilities"];
    EXPECT_EQ(caps["bounding"], wanted);
    EXPECT_EQ(caps["effective"], wanted);
    EXPECT_EQ(caps["ambient"], canon::Json::array());
    EXPECT_EQ(caps["inheritable"], canon::Json::array());
}

TEST(OciCompile, LoadsTheOuterFilterAndHandsTheInnerOneToPidOne)
{
    const auto artifact = compiled(plain_content());
    const auto config = canon::parse(artifact.config_json).value();
    const auto outer = sys::seccomp::compile(sys::seccomp::Profile::outer,
                                             sys::seccomp::Arch::x86_64);
    const std::string text = config["annotations"]["run.oci.seccomp_bpf_data"];
    EXPECT_EQ(text.size(), (outer.size() * sizeof(sock_filter) + 2) / 3 * 4);
    const auto inner = sys::seccomp::compile(sys::seccomp::Profile::standard,
                                             sys::seccomp::Arch::x86_64);
    const auto bytes = std::as_bytes(std::span(inner));
    EXPECT_TRUE(std::ranges::equal(bootstrap_of(artifact).bpf, bytes));
}

TEST(OciCompile, MapsOnlyTheUserIntoABind)
{
    const auto binds = steps_of<BindMount>(compiled(full_content()));
    ASSERT_EQ(binds.size(), 3U);  // /usr and two of the profile
    EXPECT_EQ(binds[0].target, "usr");
    EXPECT_EQ(binds[0].access, Access::read_only);
    EXPECT_EQ(binds[0].map, MountIdMap{});
    EXPECT_EQ(binds[1].map.uids, (std::vector<IdRange>{{1000, 0x20000000 + 1000, 1}}));
    EXPECT_EQ(binds[1].ground, Ground::ours);
    EXPECT_EQ(binds[2].ground, Ground::operators) << "/work/read lies in the folder at /work";
}

TEST(OciCompile, PinsTheAncestorsOfAMaskInAWritableGrantOnly)
{
    const auto masks = steps_of<MaskPath>(compiled(full_content()));
    ASSERT_EQ(masks.size(), 3U);
    EXPECT_EQ(masks[0].pinned, (std::vector<std::string>{"work/a", "work/a/b"}));
    EXPECT_EQ(masks[0].host.str(), "/srv/data/a/b/.env");
    EXPECT_TRUE(masks[1].pinned.empty());
    EXPECT_EQ(masks[1].host.str(), "/srv/read/key");
    EXPECT_EQ(masks[2].ground, Ground::ours);
    EXPECT_TRUE(masks[2].host.empty());
}

TEST(OciCompile, SealsAReadOnlyRootLast)
{
    plan::PlanContent content = full_content();
    EXPECT_TRUE(std::holds_alternative<SealRoot>(compiled(content).steps.back()));
    content.rootfs.read_only = false;
    EXPECT_TRUE(steps_of<SealRoot>(compiled(content)).empty());
}

TEST(OciCompile, LetsThePlansOwnMountReplaceTheUsualTmp)
{
    plan::PlanContent content = plain_content();
    content.mounts = {{profile::MountType::tmpfs, HostPath(), GuestPath("/tmp"), false,
                       plan::Ownership::overflow, Bytes{4096}, 01777}};
    int found = 0;
    for (const auto& step : steps_of<TmpfsMount>(compiled(content)))
        if (step.target == "tmp") {
            ++found;
            EXPECT_EQ(step.size, 4096U);
        }
    EXPECT_EQ(found, 1);
}

TEST(OciCompile, PermitsSessionsThePlansUserAndNobodyElse)
{
    const auto record = bootstrap_of(compiled(full_content()));
    EXPECT_EQ(record.permitted_ids, (std::vector<wire::PermittedId>{{1000, 1000}}));
    EXPECT_TRUE(record.permitted_groups.empty());
    EXPECT_EQ(record.capabilities, 1ULL << 10);  // CAP_NET_BIND_SERVICE
    EXPECT_EQ(record.env.size(), 2U);
    EXPECT_EQ(record.mode, wire::BootMode::host_sandbox);
    EXPECT_EQ(record.channel_fd, 3U);
}

TEST(OciCompile, GrantsWritesOnlyWhereThePlanIsWritable)
{
    const auto record = bootstrap_of(compiled(full_content()));
    std::map<std::string, std::uint64_t> rules;
    for (const auto& rule : record.landlock) rules[rule.path] = rule.access;
    constexpr std::uint64_t kWrite = 1U << 1;  // LANDLOCK_ACCESS_FS_WRITE_FILE
    EXPECT_EQ(rules["/"] & kWrite, 0U);
    EXPECT_NE(rules["/work"] & kWrite, 0U);
    EXPECT_FALSE(rules.contains("/work/read"));
}

TEST(OciCompile, OpensTheServiceBehindTheGate)
{
    const auto plan = sealed(full_content());
    const wire::Open open = service_open(plan);
    EXPECT_EQ(open.kind, wire::SessionKind::service);
    EXPECT_TRUE(open.gate);
    EXPECT_EQ(open.stdio, wire::SessionStdio::descriptors);
    EXPECT_EQ(open.argv, plan->process.argv);
    EXPECT_EQ(open.timeout_ms, 30'000U);
    EXPECT_EQ(open.umask, 0027U);
    EXPECT_TRUE(exec_open(plan, {"x"}).gate);
}

TEST(OciSources, RefusesTheHostsOwnPlacesAndWhatHoldsThem)
{
    const Binding binding = sample_binding();
    for (const char* path :
         {"/", "/proc", "/proc/self", "/sys/fs/cgroup", "/dev", "/dev/shm", "/run",
          "/run/docker.sock", "/run/dbus/system_bus_socket", "/var", "/var/lib", "/etc",
          "/etc/sandbox/org.d", "/run/sandbox/x", "/var/lib/sandbox/ledger.db", ""})
        EXPECT_NE(protected_reason(path, binding), "") << path;
    for (const char* path : {"/srv/data", "/home/user", "/usr", "/opt", "/procedure", "/devices",
                             "/etc/ssl/certs", "/var/lib/sandbox2"})
        EXPECT_EQ(protected_reason(path, binding), "") << path;
}

TEST(OciSources, RefusesTheFoldersOfAnotherRootToo)
{
    Binding binding = sample_binding();
    binding.run_dir = HostPath("/srv/t/run/sandbox/ID");
    binding.state_dir = HostPath("/srv/t/var/lib/sandbox/sandboxes/ID");
    for (const char* path : {"/srv/t/run/sandbox", "/srv/t/var/lib/sandbox/ledger.db", "/srv/t"})
        EXPECT_NE(protected_reason(path, binding), "") << path;
    EXPECT_EQ(protected_reason("/srv/t/data", binding), "");
}

}  // namespace sandbox::driver::test
