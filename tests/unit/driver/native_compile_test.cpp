// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "canon/json.hpp"
#include "driver/native/compile.hpp"
#include "driver/rootless.hpp"
#include "fixture.hpp"
#include "sys/seccomp/compile.hpp"
#include "sys/seccomp/digest.hpp"

namespace sandbox::driver::test {
namespace {

constexpr std::string_view kPrivilegeFact = "host.privilege";  // facts::name::kPrivilege
constexpr auto kNative = profile::Driver::native;

native::NativeArtifact compiled_native(const plan::PlanContent& content)
{
    auto artifact = native::compile(sealed(content), sample_binding());
    if (!artifact) ADD_FAILURE() << artifact.error().message();
    return artifact ? std::move(*artifact) : native::NativeArtifact{};
}

std::string native_refusal(const plan::PlanContent& content)
{
    const auto artifact = native::compile(sealed(content), sample_binding());
    return artifact ? "" : artifact.error().message();
}

// Without what a new rule of the filters would touch.
std::string readable_native(const native::NativeArtifact& artifact)
{
    auto json = canon::parse(*native::render(artifact)).value();
    json["box"]["filter"] = "(outer filter)";
    json["bootstrap"] = without_filter(artifact.bootstrap);
    json.erase("digest");
    return json.dump(1) + "\n";
}

}  // namespace

TEST(NativeCompile, GivesTheSameBytesTwice)
{
    EXPECT_EQ(*native::render(compiled_native(full_content(kNative))),
              *native::render(compiled_native(full_content(kNative))));
}

TEST(NativeCompile, MatchesItsGoldenForAPlainPlan)
{
    expect_golden("native-plain", readable_native(compiled_native(plain_content(kNative))));
}

TEST(NativeCompile, MatchesItsGoldenForAFullPlan)
{
    expect_golden("native-full", readable_native(compiled_native(full_content(kNative))));
}

// Root's artifact says nothing of it: it stays what it was, byte for byte.
TEST(NativeCompile, BindsNodesForAnOrdinaryUserOnly)
{
    plan::PlanContent content = plain_content(kNative);
    EXPECT_EQ(native::render(compiled_native(content))->find("\"devices\""), std::string::npos);
    content.facts[std::string(kPrivilegeFact)] = {"ok", "root"};
    EXPECT_FALSE(is_rootless(content));
    content.facts[std::string(kPrivilegeFact)] = {"ok", "user"};
    EXPECT_TRUE(is_rootless(content));
    EXPECT_EQ(compiled_native(content).box.devices, confine::Devices::bound);
    EXPECT_NE(native::render(compiled_native(content))->find("\"devices\":\"bound\""),
              std::string::npos);
}

// Law 1: a field that changes nothing would be a field that enforces nothing.
TEST(NativeCompile, ChangesTheArtifactWithEveryFieldOfThePlan)
{
    const std::string before = compiled_native(full_content(kNative)).digest;
    for (const Mutation& mutation : mutations()) {
        plan::PlanContent content = full_content(kNative);
        mutation.change(content);
        const auto after = native::compile(sealed(content), sample_binding());
        if (after) {
            EXPECT_NE(before, after->digest) << mutation.name << " is ignored";
        }
    }
}

TEST(NativeCompile, ChangesTheArtifactWithTheBinding)
{
    const auto plan = sealed(full_content(kNative));
    Binding other = sample_binding();
    other.id_base += 65536;
    EXPECT_NE(native::compile(plan, sample_binding())->digest,
              native::compile(plan, other)->digest);
}

TEST(NativeCompile, RefusesWhatItDoesNotExpress)
{
    plan::PlanContent content = plain_content(profile::Driver::oci);
    EXPECT_NE(native_refusal(content).find("another driver"), std::string::npos);
    content = plain_content(kNative);
    content.network.mode = profile::NetworkMode::egress;
    EXPECT_NE(native_refusal(content).find("egress"), std::string::npos);
    for (std::size_t i = 0; i < 7; ++i) {
        content = plain_content(kNative);
        content.security.namespaces.erase(content.security.namespaces.begin() +
                                          static_cast<std::ptrdiff_t>(i));
        EXPECT_NE(native_refusal(content).find("namespaces"), std::string::npos) << i;
    }
    content = plain_content(kNative);
    content.rootfs.kind = "image";
    EXPECT_NE(native_refusal(content).find("image"), std::string::npos);
    content = plain_content(kNative);
    content.facts["kernel.arch"].value = "riscv64";
    EXPECT_NE(native_refusal(content).find("riscv64"), std::string::npos);
}

TEST(NativeCompile, NeverMapsTheHostsRoot)
{
    Binding binding = sample_binding();
    binding.id_base = 0;
    const auto artifact = native::compile(sealed(plain_content(kNative)), binding);
    ASSERT_FALSE(artifact);
    EXPECT_NE(artifact.error().message().find("root"), std::string::npos);
}

TEST(NativeCompile, NamesTheFiltersThatWillBeLoaded)
{
    const auto artifact = compiled_native(plain_content(kNative));
    EXPECT_EQ(artifact.filters.at("outer"), sys::seccomp::program_digest(artifact.box.filter));
    EXPECT_EQ(artifact.filters.at("inner"),
              sys::seccomp::program_digest(sys::seccomp::compile(sys::seccomp::Profile::standard,
                                                                 sys::seccomp::Arch::x86_64)));
}

TEST(NativeCompile, KeepsPidOnesCapabilitiesSmall)
{
    EXPECT_EQ(sys::cap_names(compiled_native(plain_content(kNative)).box.capabilities),
              (std::vector<std::string>{"CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP"}));
}

}  // namespace sandbox::driver::test
