// SPDX-License-Identifier: Apache-2.0
#include "profile/config.hpp"

#include <gtest/gtest.h>

#include "profile/document.hpp"
#include "profile/profile.hpp"

namespace sandbox::profile {

namespace {

ParsedConfig config_with(const std::string& more)
{
    return parse_config("version = 1\n" + more, "config.toml");
}

std::string first(const ParsedConfig& parsed)
{
    return parsed.diagnostics.empty() ? "" : format(parsed.diagnostics.front());
}

OperatorConfig full_config()
{
    OperatorConfig config;
    config.drivers = {Driver::oci, Driver::microvm};
    config.default_driver = Driver::microvm;
    for (const char* name :
         {"crun", "sandbox-init", "sandbox-shim", "qemu", "virtiofsd", "kernel", "initrd"}) {
        config.artifacts[name] = {HostPath("/opt/" + std::string(name)), "1.0 \"x\" \\ \t",
                                  "sha256:" + std::string(64, 'b')};
        config.artifacts[name].version = "1.0 \"x\" \\";
    }
    config.accelerator = "tcg";
    config.accept_emulated = true;
    config.cgroup_parent = "/sandbox/inner";
    config.max_sandboxes = 7;
    config.copy_limit = Bytes{3ULL << 20};
    config.log_size = Bytes{1234};
    config.log_files = 2;
    config.id_base = 65536 * 9;
    config.id_ranges = 3;
    config.directories = {
        {"state", "/data/state"}, {"run", "/run/other"}, {"secrets", "/data/secrets"}};
    config.microvm = {3, Bytes{1ULL << 30}};
    config.microvm_stores = {"/gnu/store", "/nix/store"};
    config.microvm_shares = {"/srv"};
    return config;
}

}  // namespace

TEST(OperatorConfig, BuiltInDefaultsAreWhatAnEmptyFileMeans)
{
    const auto parsed = config_with("");
    ASSERT_TRUE(parsed.config) << first(parsed);
    EXPECT_EQ(*parsed.config, OperatorConfig{});
}

TEST(OperatorConfig, RendersTomlThatParsesBackEqual)
{
    for (const OperatorConfig& config : {OperatorConfig{}, full_config()}) {
        const auto parsed = parse_config(render_config(config), "c");
        ASSERT_TRUE(parsed.config) << first(parsed) << "\n" << render_config(config);
        EXPECT_EQ(*parsed.config, config);
    }
}

TEST(OperatorConfig, WhatIsRenderedObeysThePublishedSchema)
{
    const Document document = read_toml(render_config(full_config()), "c");
    ASSERT_TRUE(document.parsed);
    EXPECT_TRUE(check_schema("config", document.json).empty());
}

TEST(OperatorConfig, RemembersWhereKeysWereWritten)
{
    const auto parsed = config_with("max_sandboxes = 3\n[logs]\nfiles = 2\n");
    ASSERT_TRUE(parsed.config);
    EXPECT_EQ(parsed.where.at("logs.files"), (SourceLocation{"config.toml", 4, 1}));
}

TEST(OperatorConfig, EmulationMustBeAcceptedInWords)
{
    EXPECT_NE(first(config_with("accelerator = \"tcg\"\n")).find("accept_emulated = true"),
              std::string::npos);
    EXPECT_TRUE(config_with("accelerator = \"tcg\"\naccept_emulated = true\n").config);
    EXPECT_FALSE(config_with("accelerator = \"hvf\"\n").config);
}

TEST(OperatorConfig, TheDefaultDriverIsOneOfTheDrivers)
{
    EXPECT_FALSE(config_with("drivers = [\"microvm\"]\n").config);
    EXPECT_TRUE(config_with("drivers = [\"microvm\"]\ndefault_driver = \"microvm\"\n").config);
    EXPECT_FALSE(config_with("drivers = []\n").config);
    EXPECT_FALSE(config_with("drivers = [\"oci\", \"oci\"]\n").config);
}

TEST(OperatorConfig, IdRangesAreWholeAndEndBelowTheLastId)
{
    EXPECT_FALSE(config_with("[ids]\nbase = 65537\n").config);
    EXPECT_FALSE(config_with("[ids]\nbase = 0\n").config);
    EXPECT_FALSE(config_with("[ids]\nbase = 4294836224\nranges = 2\n").config);
    EXPECT_TRUE(config_with("[ids]\nbase = 4294836224\nranges = 1\n").config);
}

TEST(OperatorConfig, RefusesPathsThatAreNotNormal)
{
    for (const char* line :
         {"cgroup_parent = \"sandbox\"", "cgroup_parent = \"/\"", "cgroup_parent = \"/a/../b\"",
          "directories.state = \"relative\"", "directories.run = \"/\"", "copy_limit = \"0\"",
          "directories.run = \"\"",
          "artifacts.crun = { path = \"crun\", version = \"1\", sha256 = \"\" }"}) {
        EXPECT_FALSE(config_with(std::string(line) + "\n").config) << line;
    }
}

TEST(OperatorConfig, RefusesFoldersThatLieInEachOther)
{
    const auto folders = [](const char* state, const char* run) {
        return config_with("[directories]\nstate = \"" + std::string(state) + "\"\nrun = \"" + run +
                           "\"\n");
    };
    EXPECT_TRUE(folders("/data/state", "/data/run").config);
    EXPECT_TRUE(folders("/data/s", "/data/s2").config);
    for (const auto& [state, run] : {std::pair{"/data", "/data"}, std::pair{"/data", "/data/run"},
                                     std::pair{"/data/run/state", "/data/run"}}) {
        const auto parsed = folders(state, run);
        EXPECT_FALSE(parsed.config) << state << " and " << run;
        ASSERT_FALSE(parsed.diagnostics.empty());
        EXPECT_GT(parsed.diagnostics.front().at.line, 1U);
    }
}

TEST(OperatorConfig, FoldersOfGuestsAreSeveralBelowTheRootAndApart)
{
    const auto shares = [](const char* list) {
        return config_with("[microvm]\nshares = " + std::string(list) + "\n").config.has_value();
    };
    EXPECT_TRUE(shares("[\"/srv\", \"/srv2\"]"));
    for (const char* list : {"[\"/\"]", "[\"srv\"]", "[\"/a:b\"]", "[\"/srv\", \"/srv\"]",
                             "[\"/srv/x\", \"/srv-y\", \"/srv\"]", "[\"/a/../b\"]", "\"/srv\""}) {
        EXPECT_FALSE(shares(list)) << list;
    }
    const auto sorted = config_with("[microvm]\nstores = [\"/nix/store\", \"/gnu/store\"]\n");
    ASSERT_TRUE(sorted.config);
    EXPECT_EQ(sorted.config->microvm_stores,
              (std::vector<std::string>{"/gnu/store", "/nix/store"}));
}

TEST(OperatorConfig, RefusesDigestsThatAreNoDigests)
{
    const auto pin = [](const std::string& digest) {
        return config_with(
            "[artifacts.crun]\npath = \"/usr/bin/crun\"\nversion = \"1\"\nsha256 = \"" + digest +
            "\"\n");
    };
    EXPECT_TRUE(pin("sha256:" + std::string(64, '0')).config);
    EXPECT_FALSE(pin("sha256:" + std::string(64, 'A')).config);
    EXPECT_FALSE(pin("sha256:" + std::string(63, 'a')).config);
    EXPECT_FALSE(pin("md5:" + std::string(67, 'a')).config);
}

TEST(OperatorConfig, NamesUnknownKeysWithTheNearest)
{
    EXPECT_NE(first(config_with("max_sandbox = 1\n")).find("did you mean 'max_sandboxes'?"),
              std::string::npos);
    EXPECT_NE(first(config_with("[artifacts.runc]\n")).find("did you mean 'crun'?"),
              std::string::npos);
    EXPECT_FALSE(config_with("[logs]\nsize = \"0\"\n").config);
}

}  // namespace sandbox::profile
