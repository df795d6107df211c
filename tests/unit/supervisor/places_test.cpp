// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>

#include "../ledger/support.hpp"
#include "profile/profile.hpp"
#include "supervisor/host.hpp"
#include "supervisor/paths.hpp"
#include "supervisor/stdin_pump.hpp"
#include "sys/file.hpp"

namespace sandbox::supervisor {
namespace {

namespace fs = std::filesystem;
using ledger::test::TempDir;
using ledger::test::write_bytes;

// The text that `work` gives in a forked child: it may change its user, folder and environment.
std::string in_child(const std::function<std::string()>& work)
{
    sys::Pipe pipe = sys::make_pipe().value();
    const pid_t child = fork();
    if (child == 0) {
        static_cast<void>(sys::write_all(pipe.write.get(), work()));
        _exit(0);
    }
    pipe.write.reset();
    std::string text = sys::read_all(pipe.read.get(), 1U << 20).value();
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) text += " (the child died)";
    return text;
}

std::string all_of(const Paths& p)
{
    return p.config + " " + p.profiles + " " + p.vendor_profiles + " " + p.bundles + " " + p.state +
           " " + p.run;
}

TEST(FindPaths, UsesTheSystemsFoldersForRoot)
{
    if (geteuid() != 0) GTEST_SKIP() << "not root: uid " << geteuid();
    setenv("XDG_STATE_HOME", "/elsewhere", 1);
    const Paths paths = find_paths("");
    unsetenv("XDG_STATE_HOME");
    EXPECT_EQ(all_of(paths),
              "/etc/sandbox/config.toml /etc/sandbox/profiles.d "
              "/usr/share/sandbox/profiles.d /etc/sandbox/org.d /var/lib/sandbox /run/sandbox");
    EXPECT_EQ(paths.root, "");
    EXPECT_EQ(paths.ledger(), "/var/lib/sandbox/ledger.db");
    EXPECT_EQ(paths.run_of(SandboxId("ab")), "/run/sandbox/ab");
    EXPECT_EQ(paths.logs_of(SandboxId("ab")), "/var/lib/sandbox/sandboxes/ab/logs");
}

TEST(FindPaths, PutsTheRootBeforeEveryPath)
{
    for (const char* root : {"/srv/x", "/srv/x/", "/srv/x//"}) {
        const Paths paths = find_paths(root);
        EXPECT_EQ(paths.root, "/srv/x");
        for (const std::string& path : {paths.config, paths.profiles, paths.vendor_profiles,
                                        paths.bundles, paths.state, paths.run}) {
            EXPECT_TRUE(path.starts_with("/srv/x/")) << path;
        }
    }
}

TEST(FindPaths, MakesARelativeRootAbsolute)
{
    EXPECT_EQ(in_child([] {
                  if (chdir("/usr") != 0) return std::string("chdir");
                  return find_paths("lib").root;
              }),
              "/usr/lib");
    EXPECT_EQ(find_paths("/").root, "");
}

TEST(FindPaths, UsesTheXdgFoldersForAnOrdinaryUser)
{
    if (geteuid() != 0) GTEST_SKIP() << "cannot become another user: uid " << geteuid();
    const auto as_user = [](const std::function<void()>& environment) {
        return in_child([&] {
            if (setgid(4711) != 0 || setuid(4711) != 0) return std::string("setuid");
            for (const char* name :
                 {"HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"})
                unsetenv(name);
            environment();
            return all_of(find_paths(""));
        });
    };
    EXPECT_EQ(as_user([] { setenv("HOME", "/home/u", 1); }),
              "/home/u/.config/sandbox/config.toml /home/u/.config/sandbox/profiles.d "
              "/usr/share/sandbox/profiles.d /etc/sandbox/org.d /home/u/.local/state/sandbox "
              "/run/user/4711/sandbox");
    EXPECT_EQ(as_user([] {
                  setenv("HOME", "/home/u", 1);
                  setenv("XDG_CONFIG_HOME", "/c", 1);
                  setenv("XDG_STATE_HOME", "/s", 1);
                  setenv("XDG_RUNTIME_DIR", "/r", 1);
              }),
              "/c/sandbox/config.toml /c/sandbox/profiles.d /usr/share/sandbox/profiles.d "
              "/etc/sandbox/org.d /s/sandbox /r/sandbox");
    // The XDG specification: a relative path there is to be ignored.
    EXPECT_EQ(as_user([] {
                  setenv("HOME", "/home/u", 1);
                  setenv("XDG_STATE_HOME", "relative", 1);
              }),
              as_user([] { setenv("HOME", "/home/u", 1); }));
    EXPECT_NE(as_user([] {}).find("/nonexistent/.local/state/sandbox"), std::string::npos);
}

class Located : public testing::Test {
protected:
    Located() { std::filesystem::create_directories(dir_.file("etc/sandbox")); }
    Result<Paths> with(const std::string& config)
    {
        ledger::test::write_bytes(find_paths(dir_.path()).config, config);
        return locate(dir_.path());
    }

    TempDir dir_;
};

TEST_F(Located, IsWhereTheConfigPutsStateAndRuntimeBelowTheRoot)
{
    if (geteuid() != 0) GTEST_SKIP() << "the folders of root: uid " << geteuid();
    const std::string built_in = all_of(find_paths(dir_.path()));
    EXPECT_EQ(all_of(VALUE(locate(dir_.path()))), built_in) << "no config";
    EXPECT_EQ(all_of(VALUE(with("version = 1\n"))), built_in);
    const Paths moved = VALUE(
        with("version = 1\n[directories]\nstate = \"/data/state\"\nrun = \"/run/other\"\n"));
    EXPECT_EQ(moved.state, dir_.path() + "/data/state");
    EXPECT_EQ(moved.socket(), dir_.path() + "/run/other/sandboxd.sock");
    EXPECT_EQ(moved.ledger(), dir_.path() + "/data/state/ledger.db");
    const Paths half = VALUE(with("version = 1\n\"directori\\u0065s\".state = \"/data\"\n"));
    EXPECT_EQ(half.state, dir_.path() + "/data") << "a key may be spelled with escapes";
    EXPECT_EQ(half.run, find_paths(dir_.path()).run);
}

TEST_F(Located, IsNowhereUnderAConfigThatCannotBeRead)
{
    if (geteuid() != 0) GTEST_SKIP() << "the folders of root: uid " << geteuid();
    const auto wrong = with("version = 1\n[directories]\nstate = \"relative\"\n");
    ASSERT_FALSE(wrong);
    EXPECT_NE(wrong.error().message().find("config.toml:3:"), std::string::npos)
        << wrong.error().message();
    EXPECT_TRUE(with("version = 1\nwrong = 1\n"))
        << "it names no folder: launches say what is wrong";
}

TEST(DefaultCgroupParent, DiffersFromRootToRoot)
{
    EXPECT_EQ(default_cgroup_parent(find_paths("")), "/sandbox");
    const std::string a = default_cgroup_parent(find_paths("/srv/a"));
    const std::string b = default_cgroup_parent(find_paths("/srv/b"));
    EXPECT_EQ(a.size(), std::string("/sandbox-12345678").size());
    EXPECT_NE(a, b);
    EXPECT_EQ(a, default_cgroup_parent(find_paths("/srv/a/")));
}

class Profiles : public testing::Test {
protected:
    Profiles()
    {
        paths_ = find_paths(dir_.path());
        fs::create_directories(paths_.profiles);
        fs::create_directories(paths_.vendor_profiles);
        write_bytes(paths_.vendor_profiles + "/shell.toml", "vendor");
    }
    TempDir dir_;
    Paths paths_;
};

TEST_F(Profiles, ANameIsTheOperatorsFileBeforeTheVendors)
{
    EXPECT_EQ(VALUE(read_profile(paths_, "shell")).text, "vendor");
    write_bytes(paths_.profiles + "/shell.toml", "operator");
    const ProfileText text = VALUE(read_profile(paths_, "shell"));
    EXPECT_EQ(text.text, "operator");
    EXPECT_EQ(text.file, paths_.profiles + "/shell.toml");
}

TEST_F(Profiles, ALinkToDevNullMasksTheVendorsProfile)
{
    fs::create_symlink("/dev/null", paths_.profiles + "/shell.toml");
    const auto text = read_profile(paths_, "shell");
    ASSERT_FALSE(text);
    EXPECT_EQ(text.error().code(), Code::not_found);
    EXPECT_NE(text.error().message().find("masked"), std::string::npos);
}

TEST_F(Profiles, AFileOfTheOperatorThatCannotBeUsedNeverFallsBackToTheVendors)
{
    fs::create_directory(paths_.profiles + "/shell.toml");
    EXPECT_FALSE(read_profile(paths_, "shell"));
}

TEST_F(Profiles, AWordWithASlashOrDotTomlIsAPath)
{
    write_bytes(dir_.file("mine.toml"), "mine");
    write_bytes(dir_.file("plain"), "plain");
    EXPECT_EQ(VALUE(read_profile(paths_, dir_.file("mine.toml"))).text, "mine");
    EXPECT_EQ(VALUE(read_profile(paths_, dir_.file("plain"))).text, "plain");
    // Not looked up in profiles.d, though a name of that spelling is there.
    EXPECT_EQ(in_child([&] {
                  if (chdir(dir_.path().c_str()) != 0) return std::string("chdir");
                  if (read_profile(paths_, "shell.toml")) return std::string("found by name");
                  return read_profile(paths_, "mine.toml").value().text;
              }),
              "mine");
}

TEST_F(Profiles, AMissingNameSaysWhereItWasLookedFor)
{
    const auto text = read_profile(paths_, "none");
    ASSERT_FALSE(text);
    EXPECT_EQ(text.error().code(), Code::not_found);
    EXPECT_NE(text.error().message().find(paths_.profiles), std::string::npos);
    EXPECT_NE(text.error().message().find(paths_.vendor_profiles), std::string::npos);
    EXPECT_FALSE(read_profile(paths_, ""));
    EXPECT_FALSE(read_profile(paths_, ".."));
}

TEST_F(Profiles, StandardInputIsADash)
{
    EXPECT_EQ(in_child([&] {
                  const sys::Pipe pipe = sys::make_pipe().value();
                  static_cast<void>(sys::write_all(pipe.write.get(), "from stdin"));
                  dup2(pipe.read.get(), STDIN_FILENO);
                  sys::close_number(pipe.write.get());
                  const auto text = read_profile(paths_, "-");
                  return text ? text->file + ": " + text->text : text.error().message();
              }),
              "<stdin>: from stdin");
}

TEST_F(Profiles, AFifoAFolderOrADeviceIsRefusedWithoutHanging)
{
    ASSERT_EQ(mkfifo((paths_.profiles + "/shell.toml").c_str(), 0600), 0);
    EXPECT_CODE(read_profile(paths_, "shell"), Code::invalid_argument);
    EXPECT_CODE(read_profile(paths_, dir_.path() + "/"), Code::invalid_argument);
    EXPECT_CODE(read_profile(paths_, "/dev/zero"), Code::invalid_argument);
    EXPECT_FALSE(read_profile(paths_, "/dev/null"));
}

TEST_F(Profiles, ATextThatIsTooLongIsCutWhereTheParserStillRefusesIt)
{
    write_bytes(dir_.file("long.toml"), std::string(4 * profile::kMostProfileBytes, '#'));
    const ProfileText text = VALUE(read_profile(paths_, dir_.file("long.toml")));
    EXPECT_EQ(text.text.size(), profile::kMostProfileBytes + 1);
    const auto parsed = profile::parse_profile(text.text, text.file);
    EXPECT_FALSE(parsed.profile);
}

// Copies our standard input into a pipe, in a child whose standard input is `from`.
std::string pump(const sys::Pipe& from,
                 const std::function<std::string(StdinPump&, sys::Pipe&)>& play)
{
    return in_child([&] {
        dup2(from.read.get(), STDIN_FILENO);
        sys::Pipe to = sys::make_pipe().value();
        StdinPump pump(std::move(to.write));
        return play(pump, to);
    });
}

TEST(StdinPump, PassesOnWhatComesAndClosesAtTheEnd)
{
    sys::Pipe from = VALUE(sys::make_pipe());
    EXPECT_OK(sys::write_all(from.write.get(), "hello"));
    from.write.reset();
    EXPECT_EQ(pump(from,
                   [](StdinPump& pump, sys::Pipe& to) {
                       if (pump.input() != STDIN_FILENO || pump.output() != -1)
                           return std::string("start");
                       pump.read_more();
                       if (pump.input() != -1 || pump.output() < 0) return std::string("holding");
                       pump.write_more();
                       if (pump.input() != STDIN_FILENO || pump.output() != -1)
                           return std::string("passed on");
                       pump.read_more();
                       if (pump.input() != -1 || pump.output() != -1)
                           return std::string("at the end");
                       return sys::read_all(to.read.get(), 100).value();
                   }),
              "hello");
}

TEST(StdinPump, HoldsWhatAFullPipeDoesNotTakeAndReadsNoMoreMeanwhile)
{
    const sys::Pipe from = VALUE(sys::make_pipe());
    EXPECT_EQ(pump(from,
                   [&](StdinPump& pump, sys::Pipe& to) {
                       std::string sent;
                  // Fills the workload's pipe.
                       while (pump.output() < 0) {
                           const std::string block(60'000,
                                                   static_cast<char>('a' + sent.size() % 7));
                           static_cast<void>(sys::write_all(from.write.get(), block));
                           sent += block;
                           pump.read_more();
                           pump.write_more();
                       }
                       if (pump.input() != -1)
                           return std::string("reads though it holds something");
                       std::string got;
                       while (pump.output() >= 0 || got.size() < sent.size()) {
                           std::string chunk(10'000, '\0');
                           const ssize_t count = read(to.read.get(), chunk.data(), chunk.size());
                           if (count <= 0) return std::string("read");
                           got.append(chunk, 0, static_cast<std::size_t>(count));
                           if (pump.output() >= 0) pump.write_more();
                       }
                       return std::string(got == sent ? "same" : "different");
                   }),
              "same");
}

TEST(StdinPump, GivesUpQuietlyWhenTheWorkloadClosedItsInput)
{
    const sys::Pipe from = VALUE(sys::make_pipe());
    EXPECT_OK(sys::write_all(from.write.get(), "hello"));
    EXPECT_EQ(pump(from,
                   [](StdinPump& pump, sys::Pipe& to) {
                       to.read.reset();
                       pump.read_more();
                       pump.write_more();
                       return std::string(
                           pump.input() == -1 && pump.output() == -1 ? "quiet" : "still at it");
                   }),
              "quiet");
}

TEST(StdinPump, WaitsForNothingWithoutAPipe)
{
    const StdinPump pump{sys::UniqueFd()};
    EXPECT_EQ(pump.input(), -1);
    EXPECT_EQ(pump.output(), -1);
}

}  // namespace
}  // namespace sandbox::supervisor
