// SPDX-License-Identifier: Apache-2.0
#include "canon/json.hpp"
#include "supervisor/config_files.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <sys/stat.h>
#include <unistd.h>

namespace sandbox::supervisor {
namespace {

namespace fs = std::filesystem;

// A host of its own below /tmp: programs, config.toml and org.d.
class OperatorFiles : public testing::Test {
protected:
    OperatorFiles()
    {
        std::string pattern = "/tmp/sandbox-unit-XXXXXX";
        root_ = mkdtemp(pattern.data());
        fs::create_directories(root_ + "/bin");
        fs::create_directories(root_ + "/etc/org.d");
        chmod((root_ + "/etc").c_str(), 0755);
        chmod(bundles().c_str(), 0755);
        write("bin/sandbox-init", "init", 0755);
        write("bin/sandbox-shim", "shim", 0755);
    }
    ~OperatorFiles() override
    {
        std::error_code ignored;
        fs::remove_all(root_, ignored);
    }
    OperatorFiles(const OperatorFiles&) = delete;
    OperatorFiles& operator=(const OperatorFiles&) = delete;

    std::string write(const std::string& name, const std::string& text, mode_t mode) const
    {
        const std::string path = root_ + "/" + name;
        {
            std::ofstream file(path);
            file << text;
        }
        chmod(path.c_str(), mode);
        return path;
    }
    std::string read(const std::string& path) const
    {
        std::ifstream file(path);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    std::string config() const { return root_ + "/etc/config.toml"; }
    std::string bundles() const { return root_ + "/etc/org.d"; }
    std::string programs() const { return root_ + "/bin"; }

    static const ArtifactCheck& artifact(const ConfigReport& report, const std::string& name)
    {
        static const ArtifactCheck kNone;
        const auto found = std::ranges::find(report.artifacts, name, &ArtifactCheck::name);
        return found == report.artifacts.end() ? kNone : *found;
    }

    std::string root_;
};

constexpr const char* kBundle = "version = 1\nname = \"team\"\ndrivers = [\"oci\"]\n";

TEST_F(OperatorFiles, AMissingConfigIsTheBuiltInDefaults)
{
    const auto loaded = load_config(config());
    ASSERT_TRUE(loaded.config);
    EXPECT_FALSE(loaded.present);
    EXPECT_EQ(*loaded.config, profile::OperatorConfig{});
    EXPECT_TRUE(load_config(root_ + "/absent/config.toml").config);
}

TEST_F(OperatorFiles, AValidConfigIsRead)
{
    write("etc/config.toml", "version = 1\nmax_sandboxes = 7\n", 0644);
    const auto loaded = load_config(config());
    ASSERT_TRUE(loaded.config) << (loaded.diagnostics.empty() ? "" : format(loaded.diagnostics[0]));
    EXPECT_TRUE(loaded.present);
    EXPECT_EQ(loaded.config->max_sandboxes, 7U);
}

TEST_F(OperatorFiles, AConfigWithATypoIsRefusedWithItsPlace)
{
    write("etc/config.toml", "version = 1\nmax_sandboxen = 7\n", 0644);
    const auto loaded = load_config(config());
    EXPECT_FALSE(loaded.config);
    ASSERT_FALSE(loaded.diagnostics.empty());
    EXPECT_EQ(loaded.diagnostics[0].at.line, 2U);
    EXPECT_EQ(loaded.diagnostics[0].at.file, config());
}

TEST_F(OperatorFiles, AConfigThatOthersMayChangeIsRefused)
{
    for (const mode_t mode : {0664U, 0646U}) {
        write("etc/config.toml", "version = 1\n", mode);
        const auto loaded = load_config(config());
        EXPECT_FALSE(loaded.config) << mode;
        ASSERT_EQ(loaded.diagnostics.size(), 1U);
        EXPECT_EQ(loaded.diagnostics[0].code, "untrusted-file");
    }
    write("etc/config.toml", "version = 1\n", 0644);
    ASSERT_EQ(chown(config().c_str(), 65534, 0), 0);
    EXPECT_FALSE(load_config(config()).config);
    ASSERT_EQ(chown(config().c_str(), 0, 0), 0);
    EXPECT_TRUE(load_config(config()).config);
    ASSERT_EQ(chmod((root_ + "/etc").c_str(), 0777), 0);
    EXPECT_FALSE(load_config(config()).config) << "its folder lets others replace it";
}

TEST_F(OperatorFiles, AConfigThatIsNoRegularFileIsRefused)
{
    write("etc/real.toml", "version = 1\n", 0644);
    ASSERT_EQ(symlink("real.toml", config().c_str()), 0);
    const auto link = load_config(config());
    EXPECT_FALSE(link.config);
    EXPECT_EQ(link.diagnostics.at(0).message, "is a link");
    fs::remove(config());
    ASSERT_EQ(mkfifo(config().c_str(), 0644), 0);
    EXPECT_FALSE(load_config(config()).config);
}

TEST_F(OperatorFiles, AMissingBundleFolderIsNoBundles)
{
    const auto loaded = load_bundles(root_ + "/absent");
    EXPECT_TRUE(loaded.bundles.empty());
    EXPECT_TRUE(loaded.broken.empty());
}

TEST_F(OperatorFiles, BundlesAreReadInOrderOfTheirNames)
{
    write("etc/org.d/20-b.toml", "version = 1\nname = \"b\"\n", 0644);
    write("etc/org.d/10-a.toml", kBundle, 0640);
    write("etc/org.d/notes.txt", "no bundle", 0644);
    write("etc/org.d/.30-c.toml.swp", "no bundle", 0644);
    const auto loaded = load_bundles(bundles());
    EXPECT_TRUE(loaded.broken.empty());
    ASSERT_EQ(loaded.bundles.size(), 2U);
    EXPECT_EQ(loaded.bundles[0].bundle.name, "team");
    EXPECT_EQ(loaded.bundles[1].bundle.name, "b");
}

TEST_F(OperatorFiles, ADoubtfulBundleIsBrokenAndNeverSkipped)
{
    write("etc/org.d/a.toml", "version = 1\nname = \"a\"\ndrivrs = []\n", 0644);
    write("etc/org.d/b.toml", kBundle, 0664);
    write("etc/org.d/c.toml", kBundle, 0644);
    ASSERT_EQ(chown((bundles() + "/c.toml").c_str(), 65534, 65534), 0);
    ASSERT_EQ(symlink("/dev/null", (bundles() + "/d.toml").c_str()), 0);
    ASSERT_EQ(mkdir((bundles() + "/e.toml").c_str(), 0755), 0);
    ASSERT_EQ(mkfifo((bundles() + "/f.toml").c_str(), 0644), 0);
    write("etc/org.d/g.toml", std::string(2U << 20, '#'), 0644);
    const auto loaded = load_bundles(bundles());
    EXPECT_TRUE(loaded.bundles.empty());
    ASSERT_EQ(loaded.broken.size(), 7U);
    for (std::size_t i = 0; i < loaded.broken.size(); ++i) {
        EXPECT_EQ(loaded.broken[i].file,
                  bundles() + "/" + std::string(1, static_cast<char>('a' + i)) + ".toml");
        EXPECT_FALSE(loaded.broken[i].why.empty());
    }
    EXPECT_NE(loaded.broken[1].why.find("mode 0664"), std::string::npos) << loaded.broken[1].why;
    EXPECT_NE(loaded.broken[2].why.find("uid 65534"), std::string::npos) << loaded.broken[2].why;
    EXPECT_EQ(loaded.broken[3].why, "is a link");
}

TEST_F(OperatorFiles, ABundleFolderThatOthersMayWriteIsBroken)
{
    write("etc/org.d/a.toml", kBundle, 0644);
    ASSERT_EQ(chmod(bundles().c_str(), 01777), 0);
    const auto loaded = load_bundles(bundles());
    ASSERT_EQ(loaded.broken.size(), 1U);
    EXPECT_EQ(loaded.broken[0].file, bundles());
    EXPECT_EQ(load_bundles(root_ + "/bin/sandbox-init").broken.size(), 1U) << "not a folder";
}

TEST_F(OperatorFiles, InitPinsWhatItFindsAndCheckAgrees)
{
    const auto made = config_init(config(), programs(), Overwrite::no, root_ + "/guest");
    ASSERT_TRUE(made) << made.error().message();
    EXPECT_TRUE(made->written);
    const auto loaded = load_config(config());
    ASSERT_TRUE(loaded.config) << format(loaded.diagnostics.at(0));
    const auto& pins = loaded.config->artifacts;
    EXPECT_EQ(pins.at("sandbox-init").sha256, canon::digest("init"));
    EXPECT_EQ(pins.at("sandbox-init").path.str(), programs() + "/sandbox-init");
    EXPECT_EQ(pins.at("crun").path.str(), "/usr/bin/crun");
    EXPECT_FALSE(pins.contains("kernel"));

    const auto checked = config_check(config(), programs());
    EXPECT_EQ(exit_status(checked), 0) << render(checked);
    EXPECT_EQ(artifact(checked, "crun").state, PinState::match);
    EXPECT_EQ(artifact(checked, "crun").certified,
              std::optional<bool>(pins.at("crun").version == "1.8.1"));
    EXPECT_EQ(artifact(checked, "sandbox-shim").state, PinState::match);
}

// What sandbox-mkguest writes, in small.
std::string manifest(const std::string& kernel, const std::string& initrd)
{
    const std::string digest = canon::digest("");
    const auto file = [&](const char* name, const std::string& content) {
        return std::string("{\"file\":\"") + name + "\",\"size\":1,\"sha256\":\"" +
               canon::digest(content) + "\"}";
    };
    return "{\"version\":1,\"arch\":\"x86_64\",\"console\":\"ttyS0\",\"release\":\"6.12.1-test\","
           "\"kernel\":" +
           file("vmlinux", kernel) + ",\"initrd\":" + file("initrd", initrd) + ",\"init\":\"" +
           digest + "\",\"source\":\"" + digest + "\",\"modules\":[],\"builtin\":[]}";
}

TEST_F(OperatorFiles, InitPinsAGuestImageByItsManifest)
{
    fs::create_directory(root_ + "/guest");
    write("guest/vmlinux", "a kernel", 0644);
    write("guest/initrd", "an initrd", 0644);
    write("guest/manifest.json", manifest("a kernel", "an initrd"), 0644);
    const auto made = config_init(config(), programs(), Overwrite::no, root_ + "/guest");
    ASSERT_TRUE(made) << made.error().message();
    const auto loaded = load_config(config());
    ASSERT_TRUE(loaded.config);
    const auto& pins = loaded.config->artifacts;
    ASSERT_TRUE(pins.contains("kernel"));
    EXPECT_EQ(pins.at("kernel").path.str(), root_ + "/guest/vmlinux");
    EXPECT_EQ(pins.at("kernel").version, "6.12.1-test");
    EXPECT_EQ(pins.at("kernel").sha256, canon::digest("a kernel"));
    EXPECT_EQ(pins.at("initrd").sha256, canon::digest("an initrd"));
    const bool complete = pins.contains("qemu") && pins.contains("virtiofsd");
    const auto& drivers = loaded.config->drivers;
    EXPECT_EQ(std::ranges::find(drivers, profile::Driver::microvm) != drivers.end(), complete);
    EXPECT_EQ(exit_status(config_check(config(), programs())), 0);
}

TEST_F(OperatorFiles, InitDoesNotPinAGuestThatIsNotWhatWasBuilt)
{
    fs::create_directory(root_ + "/guest");
    write("guest/vmlinux", "another kernel", 0644);
    write("guest/initrd", "an initrd", 0644);
    write("guest/manifest.json", manifest("a kernel", "an initrd"), 0644);
    const auto made = config_init(config(), programs(), Overwrite::no, root_ + "/guest");
    ASSERT_TRUE(made) << made.error().message();
    EXPECT_EQ(exit_status(*made), 1);
    EXPECT_NE(artifact(*made, "kernel").problem.find("sandbox-mkguest"), std::string::npos);
    EXPECT_FALSE(load_config(config()).config->artifacts.contains("kernel"));
}

TEST_F(OperatorFiles, InitNamesADamagedManifestAndOneThatLeavesItsFolder)
{
    fs::create_directory(root_ + "/guest");
    std::string text = manifest("a kernel", "an initrd");
    text.replace(text.find("vmlinux"), 7, "../linux");
    for (const std::string& bad : {std::string("{"), std::string("{\"version\":1}"), text}) {
        write("guest/manifest.json", bad, 0644);
        const auto made = config_init(config(), programs(), Overwrite::yes, root_ + "/guest");
        ASSERT_TRUE(made) << made.error().message();
        ASSERT_EQ(made->problems.size(), 1U) << bad;
        EXPECT_NE(made->problems[0].find("manifest.json"), std::string::npos) << made->problems[0];
    }
}

TEST_F(OperatorFiles, InitRefusesToOverwriteUnlessTold)
{
    write("etc/config.toml", "version = 1\nmax_sandboxes = 7\n", 0644);
    const auto refused = config_init(config(), programs(), Overwrite::no, root_ + "/guest");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::already_exists);
    EXPECT_EQ(read(config()), "version = 1\nmax_sandboxes = 7\n");
    ASSERT_TRUE(config_init(config(), programs(), Overwrite::yes, root_ + "/guest"));
    EXPECT_NE(read(config()).find("sha256:"), std::string::npos);
    struct stat status{};
    ASSERT_EQ(stat(config().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0644U);
}

TEST_F(OperatorFiles, InitMakesTheFolder)
{
    const std::string path = root_ + "/new/sandbox/config.toml";
    ASSERT_TRUE(config_init(path, programs(), Overwrite::no, root_ + "/guest"));
    EXPECT_TRUE(load_config(path).config);
}

TEST_F(OperatorFiles, CheckNamesAChangedAndAMissingArtifact)
{
    ASSERT_TRUE(config_init(config(), programs(), Overwrite::no, root_ + "/guest"));
    write("bin/sandbox-init", "tini", 0755);
    fs::remove(root_ + "/bin/sandbox-shim");
    const auto report = config_check(config(), programs());
    EXPECT_EQ(exit_status(report), 1);
    EXPECT_EQ(artifact(report, "sandbox-init").state, PinState::mismatch);
    EXPECT_NE(artifact(report, "sandbox-init").problem.find(canon::digest("init")),
              std::string::npos);
    EXPECT_EQ(artifact(report, "sandbox-shim").state, PinState::missing);
    EXPECT_FALSE(artifact(report, "sandbox-shim").problem.empty());
}

TEST_F(OperatorFiles, CheckTellsCertifiedVersionsAndAdvisories)
{
    const auto report = config_check(config(), programs());
    EXPECT_FALSE(report.present);
    const ArtifactCheck& crun = artifact(report, "crun");
    ASSERT_TRUE(crun.certified);
    EXPECT_EQ(crun.state, PinState::unpinned);
    EXPECT_FALSE(crun.advisories.empty());
    const std::string text = render(report);
    EXPECT_NE(text.find("built-in defaults hold"), std::string::npos);
    EXPECT_NE(text.find("CVE-2026-88264"), std::string::npos);
    const auto json = to_json(report);
    EXPECT_EQ(json.at("artifacts").at(0).at("name"), "crun");
    EXPECT_TRUE(canon::serialize(json));
}

TEST_F(OperatorFiles, CheckReportsAnUntrustedConfig)
{
    ASSERT_TRUE(config_init(config(), programs(), Overwrite::no, root_ + "/guest"));
    ASSERT_EQ(chmod(config().c_str(), 0666), 0);
    const auto report = config_check(config(), programs());
    EXPECT_EQ(exit_status(report), 1);
    ASSERT_EQ(report.problems.size(), 1U);
    EXPECT_NE(report.problems[0].find("mode 0666"), std::string::npos) << report.problems[0];
}

TEST_F(OperatorFiles, SettingsForTheProberCarryPinsAndDefaults)
{
    profile::OperatorConfig config;
    config.artifacts["qemu"] = {HostPath("/opt/qemu"), "8.0", "sha256:" + std::string(64, 'a')};
    config.cgroup_parent = "/work";
    config.drivers = {profile::Driver::oci, profile::Driver::microvm};
    const auto settings = probe_settings(config, programs());
    EXPECT_EQ(settings.vmm.path, "/opt/qemu");
    ASSERT_TRUE(settings.vmm.pin);
    EXPECT_EQ(settings.vmm.pin->version, "8.0");
    EXPECT_FALSE(settings.runtime.pin);
    EXPECT_EQ(settings.init.path, programs() + "/sandbox-init");
    EXPECT_EQ(settings.cgroup_parent, std::optional<std::string>("/work"));
    EXPECT_EQ(settings.drivers, (std::vector<std::string>{"microvm", "oci"}));
}

}  // namespace
}  // namespace sandbox::supervisor
