// SPDX-License-Identifier: Apache-2.0
#include "ctl/command_line.hpp"

#include "ctl/terminal.hpp"

#include <gtest/gtest.h>

namespace sandbox::ctl {
namespace {

using Words = std::vector<std::string>;
using RunVerb = Run;  // inside a test, Run is the test's own

std::variant<Command, Answer> parse(const Words& words)
{
    std::vector<const char*> argv{"sandboxctl"};
    for (const std::string& word : words) argv.push_back(word.c_str());
    return parse_command_line(static_cast<int>(argv.size()), argv.data());
}

Command command(const Words& words)
{
    auto parsed = parse(words);
    if (const Answer* answer = std::get_if<Answer>(&parsed)) {
        ADD_FAILURE() << answer->text;
        return {};
    }
    return std::get<Command>(std::move(parsed));
}

template <class T>
T verb(const Words& words)
{
    const Command c = command(words);
    if (const T* value = std::get_if<T>(&c.verb)) return *value;
    ADD_FAILURE() << "another verb";
    return {};
}

Answer answer(const Words& words)
{
    auto parsed = parse(words);
    if (const Answer* a = std::get_if<Answer>(&parsed)) return *a;
    ADD_FAILURE() << "taken: " << words.front();
    return {};
}

TEST(CommandLine, LeavesEverythingBehindTheNameToTheSessionsCommand)
{
    for (const Words& words :
         {Words{"exec", "-it", "-eA=b", "-w", "/tmp", "web", "ls", "-la", "--help", "--"},
          Words{"exec", "-i", "-te", "A=b", "--workdir", "/tmp", "web", "--", "ls", "-la", "--help",
                "--"},
          Words{"--root", "/r", "exec", "-i", "-t", "--env", "A=b", "-w/tmp", "web", "ls", "-la",
                "--help", "--"}}) {
        const auto exec = verb<Exec>(words);
        EXPECT_EQ(exec.name, "web");
        EXPECT_EQ(exec.argv, (Words{"ls", "-la", "--help", "--"}));
        EXPECT_EQ(exec.env, Words{"A=b"});
        EXPECT_EQ(exec.workdir, "/tmp");
        EXPECT_TRUE(exec.interactive && exec.terminal && !exec.detach);
    }
    const auto plain = verb<Exec>({"--root", "/r", "exec", "web", "--", "true"});
    EXPECT_EQ(plain.argv, Words{"true"});
    EXPECT_EQ(verb<Exec>({"exec", "web", "[", "-e", "/x", "]"}).argv,
              (Words{"[", "-e", "/x", "]"}));
    const auto full = verb<Exec>({"exec", "-d", "-u", "1000:1000", "--timeout", "30s",
                                  "--expect-plan", "sha256:0", "--detach-keys", "ctrl-x", "web",
                                  "sh"});
    EXPECT_TRUE(full.detach);
    EXPECT_EQ(full.user, "1000:1000");
    EXPECT_EQ(full.timeout, "30s");
    EXPECT_EQ(full.expect_plan, "sha256:0");
    EXPECT_EQ(full.detach_keys, "ctrl-x");
}

TEST(CommandLine, RefusesSessionsThatCannotBeMeant)
{
    EXPECT_EQ(answer({"exec", "web"}).status, kOurFailure);
    EXPECT_EQ(answer({"exec"}).status, kOurFailure);
    EXPECT_EQ(answer({"exec", "-di", "web", "true"}).status, kOurFailure);
    EXPECT_EQ(answer({"attach"}).status, kOurFailure);
    EXPECT_EQ(answer({"attach", "--from", "x", "web"}).status, kOurFailure);
    EXPECT_EQ(answer({"sessions"}).status, 2);
}

TEST(CommandLine, KnowsTheVerbsOfSessions)
{
    const auto attach = verb<Attach>(
        {"attach", "--session", "s2", "--from", "10", "--from-stderr", "20", "--no-stdin", "web"});
    EXPECT_EQ(attach.session, "s2");
    EXPECT_EQ(attach.from, 10U);
    EXPECT_EQ(attach.from_stderr, 20U);
    EXPECT_TRUE(attach.no_stdin);
    EXPECT_FALSE(verb<Attach>({"attach", "web"}).from);
    EXPECT_EQ(verb<Sessions>({"sessions", "web"}).name, "web");
    EXPECT_EQ(verb<Kill>({"kill", "--session", "s2", "web"}).session, "s2");
    EXPECT_TRUE(verb<RunVerb>({"run", "-it", "a"}).terminal);
}

TEST(DetachKeysOption, IsKeysBetweenCommas)
{
    EXPECT_EQ(parse_detach_keys("ctrl-p,ctrl-q").value(), "\x10\x11");
    EXPECT_EQ(parse_detach_keys("ctrl-P").value(), "\x10");
    EXPECT_EQ(parse_detach_keys("a,ctrl-[,b").value(), "a\x1b"
                                                       "b");
    EXPECT_EQ(parse_detach_keys("ctrl-\\").value(), "\x1c");
    EXPECT_EQ(parse_detach_keys("").value(), "");
    for (const char* wrong : {"ctrl-", "ctrl-1", "ctrl-pp", "ab", "alt-x", "ctrl-p,,q"}) {
        EXPECT_FALSE(parse_detach_keys(wrong)) << wrong;
    }
}

TEST(CommandLine, KnowsEveryVerb)
{
    EXPECT_TRUE(verb<ConfigInit>({"config", "init", "-f"}).force);
    verb<ConfigCheck>({"config", "check"});
    EXPECT_EQ(verb<Validate>({"validate", "a", "b.toml", "-"}).profiles,
              (Words{"a", "b.toml", "-"}));
    EXPECT_EQ(verb<Plan>({"plan", "a", "--snapshot", "s.json"}).snapshot, "s.json");
    EXPECT_EQ(verb<Plan>({"plan", "a", "--diff", "web"}).diff, "web");
    EXPECT_TRUE(verb<Plan>({"plan", "a", "--artifact"}).artifact);
    EXPECT_EQ(verb<RunVerb>({"run", "a"}).profile, "a");
    EXPECT_TRUE(verb<Ps>({"ps", "-a"}).all);
    EXPECT_TRUE(verb<Ps>({"ps", "--quiet"}).quiet);
    EXPECT_EQ(verb<Inspect>({"inspect", "a", "b"}).names, (Words{"a", "b"}));
    EXPECT_EQ(verb<Stop>({"stop", "-t", "5s", "a", "b"}).names, (Words{"a", "b"}));
    EXPECT_EQ(verb<Stop>({"stop", "a", "--time", "5s"}).time, "5s");
    EXPECT_EQ(verb<Kill>({"kill", "a"}).signal, "KILL");
    EXPECT_EQ(verb<Kill>({"kill", "-s", "TERM", "a"}).signal, "TERM");
    EXPECT_EQ(verb<Wait>({"wait", "a"}).names, (Words{"a"}));
    EXPECT_TRUE(verb<Remove>({"rm", "-f", "a"}).force);
    verb<Probe>({"probe"});
    EXPECT_EQ(verb<Doctor>({"doctor", "a"}).profile, "a");
    EXPECT_EQ(verb<Doctor>({"doctor"}).profile, "");
    verb<PolicyExplain>({"policy", "explain"});
    verb<AuditVerify>({"audit", "verify"});
    EXPECT_EQ(verb<AuditShow>({"audit", "show", "web"}).name, "web");
    verb<Reconcile>({"reconcile"});
    verb<Version>({"version"});
}

TEST(CommandLine, ReadsTheOptionsOfLogs)
{
    const Logs plain = verb<Logs>({"logs", "web"});
    EXPECT_EQ(plain.name, "web");
    EXPECT_EQ(plain.stream, "both");
    EXPECT_FALSE(plain.follow);
    const Logs all = verb<Logs>({"logs", "-f", "--stream", "stderr", "--json", "web"});
    EXPECT_TRUE(all.follow);
    EXPECT_TRUE(all.raw_json);
    EXPECT_EQ(all.stream, "stderr");
    EXPECT_EQ(answer({"logs", "--stream", "stdin", "web"}).status, 2);
}

TEST(CommandLine, ReadsTheOptionsOfRun)
{
    const RunVerb run = verb<RunVerb>(
        {"run", "-d", "--rm", "-i", "--name", "web", "--overlay", "o.toml", "p"});
    EXPECT_TRUE(run.detach && run.remove && run.interactive);
    EXPECT_EQ(run.name, "web");
    EXPECT_EQ(run.overlay, "o.toml");
    EXPECT_EQ(run.profile, "p");
    EXPECT_EQ(verb<RunVerb>({"run", "--plan", "p.json"}).plan, "p.json");
}

TEST(CommandLine, CollectsRepeatedEnvironmentWordsWithoutEatingTheProfile)
{
    const RunVerb run = verb<RunVerb>({"run", "-e", "A=1", "p", "-e", "B=x=y", "--env", "C="});
    EXPECT_EQ(run.env, (Words{"A=1", "B=x=y", "C="}));
    EXPECT_EQ(run.profile, "p");
    EXPECT_EQ(verb<Plan>({"plan", "-e", "A=[1,2]", "p"}).env, (Words{"A=[1,2]"}));
    EXPECT_TRUE(run.argv.empty());
}

TEST(CommandLine, HandsOnEverythingBehindTheDashesUntouched)
{
    const Words words{"/bin/sh",    "-c",        "echo $1; exit 7",
                      "--",         "--name",    "x",
                      "-d",         "--help",    "-e",
                      "A=B",        "--root=/x", "",
                      "a b",        "\xff",      "-",
                      "++",         "%%",        "[a,b]",
                      "[]",         "[[x]]",     "{}",
                      "\"quoted\"", "'single'",  "`tick`",
                      "a,b",        "@file",     "/help",
                      "run"};
    Words line{"run", "p", "--"};
    line.insert(line.end(), words.begin(), words.end());
    const RunVerb run = verb<RunVerb>(line);
    EXPECT_EQ(run.argv, words);
    EXPECT_EQ(run.profile, "p");
    EXPECT_EQ(run.name, "");
    EXPECT_TRUE(run.env.empty());
    line.front() = "plan";
    EXPECT_EQ(verb<Plan>(line).argv, words);
}

TEST(CommandLine, HandsOnEachOddWordWhenItIsTheOnlyOne)
{
    for (const char* word : {"", "[a,b]", "[]", "%%", "{}", "--", "-x", "\"\"", "[1,2", "a,b]"}) {
        EXPECT_EQ(verb<RunVerb>({"run", "p", "--", word}).argv, Words{word}) << word;
    }
}

TEST(CommandLine, TakesOddWordsBeforeTheDashesAsTheyAre)
{
    EXPECT_EQ(verb<RunVerb>({"run", "p", "grep", "[a,b]", "\x01[x]", "\x01"}).argv,
              (Words{"grep", "[a,b]", "\x01[x]", "\x01"}));
    EXPECT_EQ(verb<RunVerb>({"run", "p", "-e", "[A=1,B=2]"}).env, (Words{"[A=1,B=2]"}));
}

TEST(CommandLine, TakesTheRootBeforeAndBehindTheVerb)
{
    EXPECT_EQ(command({"ps"}).root, "");
    EXPECT_EQ(command({"--root", "/srv/x", "ps"}).root, "/srv/x");
    EXPECT_EQ(command({"--root=/srv/x", "ps"}).root, "/srv/x");
    EXPECT_EQ(command({"ps", "--root", "/srv/x"}).root, "/srv/x");
    EXPECT_EQ(command({"run", "--root", "/srv/x", "p", "--", "/bin/true", "--root", "/y"}).root,
              "/srv/x");
    EXPECT_EQ(command({"audit", "verify", "--root", "/srv/x"}).root, "/srv/x");
    EXPECT_EQ(command({"--root", "/outer", "ps", "--root", "/inner"}).root, "/inner");
}

TEST(CommandLine, KnowsWhatFormatWasAskedFor)
{
    EXPECT_EQ(command({"ps"}).format, std::nullopt);
    EXPECT_EQ(command({"ps", "--json"}).format, Format::json);
    EXPECT_EQ(command({"ps", "-o", "json"}).format, Format::json);
    EXPECT_EQ(command({"plan", "p", "-o", "yaml"}).format, Format::yaml);
    EXPECT_EQ(command({"plan", "p", "--output", "table"}).format, Format::table);
    EXPECT_EQ(answer({"ps", "-o", "xml"}).status, 2);
}

TEST(CommandLine, AnswersWrongUsageWith2)
{
    for (const Words& words : std::vector<Words>{{},
                                                 {"frobnicate"},
                                                 {"ps", "--frobnicate"},
                                                 {"ps", "extra"},
                                                 {"plan"},
                                                 {"validate"},
                                                 {"inspect"},
                                                 {"stop"},
                                                 {"kill"},
                                                 {"wait"},
                                                 {"rm"},
                                                 {"logs"},
                                                 {"audit"},
                                                 {"audit", "show"},
                                                 {"config"},
                                                 {"policy"},
                                                 {"policy", "forget"},
                                                 {"--root"},
                                                 {"kill", "-s"},
                                                 {"ps", "-z"}}) {
        const auto parsed = parse(words);
        const Answer* wrong = std::get_if<Answer>(&parsed);
        ASSERT_NE(wrong, nullptr) << (words.empty() ? "" : words.front());
        EXPECT_EQ(wrong->status, 2) << (words.empty() ? "" : words.front());
        EXPECT_NE(wrong->text.find("--help"), std::string::npos) << wrong->text;
    }
}

TEST(CommandLine, AnswersWrongUsageOfRunWith125)
{
    for (const Words& words : std::vector<Words>{{"run"},
                                                 {"run", "--frobnicate", "p"},
                                                 {"run", "p", "--plan", "f"},
                                                 {"run", "--plan", "f", "-e", "A=B"},
                                                 {"run", "--plan", "f", "--overlay", "o"},
                                                 {"run", "--plan", "f", "--", "/bin/true"},
                                                 {"run", "p", "--name"},
                                                 {"--root", "/x", "run", "--bogus"},
                                                 {"--root=/x", "run", "--bogus"}}) {
        EXPECT_EQ(answer(words).status, 125) << words.back();
    }
    // A word that is the value of --root does not make it a run.
    EXPECT_EQ(answer({"--root", "run", "ps", "--bogus"}).status, 2);
}

TEST(CommandLine, TypesTheVerbsBetweenLaunchAndRemoval)
{
    const auto verb_of = [](const Words& words) { return std::get<Command>(parse(words)).verb; };
    const auto create = std::get<Create>(
        verb_of({"create", "--name", "n", "--rm", "p", "--", "/bin/echo", "--", "[a,b]"}));
    EXPECT_EQ(create.profile, "p");
    EXPECT_TRUE(create.remove);
    EXPECT_EQ(create.argv, (Words{"/bin/echo", "--", "[a,b]"}));
    const auto start = std::get<Start>(verb_of({"start", "-a", "-i", "n"}));
    EXPECT_TRUE(start.attach && start.interactive && !start.detach);
    EXPECT_EQ(std::get<Start>(verb_of({"start", "-d", "a", "b"})).names, (Words{"a", "b"}));
    EXPECT_EQ(std::get<Restart>(verb_of({"restart", "-t", "3", "a"})).time, "3");
    EXPECT_EQ(std::get<Pause>(verb_of({"pause", "a", "b"})).names, (Words{"a", "b"}));
    EXPECT_EQ(std::get<Resume>(verb_of({"resume", "a"})).names, Words{"a"});
    EXPECT_EQ(std::get<Touch>(verb_of({"touch", "a"})).names, Words{"a"});
    const auto stats = std::get<StatsVerb>(verb_of({"stats", "-f", "--interval", "50ms"}));
    EXPECT_TRUE(stats.follow && stats.names.empty());
    EXPECT_EQ(stats.interval, "50ms");
    const auto events = std::get<Events>(verb_of({"events", "-f", "--since", "17", "a"}));
    EXPECT_EQ(events.since, "17");
    EXPECT_EQ(events.name, "a");
    for (const Words& words : std::vector<Words>{{"create"},
                                                 {"create", "p", "--plan", "f"},
                                                 {"create", "--plan", "f", "-e", "A=B"},
                                                 {"start"},
                                                 {"start", "-a", "-d", "n"},
                                                 {"start", "-i", "n"},
                                                 {"start", "-a", "n", "m"}}) {
        EXPECT_EQ(answer(words).status, 125) << words.back();
    }
    for (const Words& words : std::vector<Words>{{"restart"},
                                                 {"pause"},
                                                 {"resume"},
                                                 {"touch"},
                                                 {"events", "a", "b"},
                                                 {"stats", "--interval"}}) {
        EXPECT_EQ(answer(words).status, 2) << words.back();
    }
}

TEST(CommandLine, HelpsWithStatus0)
{
    const Answer all = answer({"--help"});
    EXPECT_EQ(all.status, 0);
    for (const char* word :
         {"config", "validate", "plan", "run", "ps", "inspect", "logs", "stop", "kill", "wait",
          "rm", "probe", "doctor", "policy", "audit", "reconcile", "version", "125 denied"}) {
        EXPECT_NE(all.text.find(word), std::string::npos) << word;
    }
    const Answer run = answer({"run", "--help"});
    EXPECT_EQ(run.status, 0);
    for (const char* word : {"--rm", "--name", "--detach", "--overlay", "--plan", "PROFILE"}) {
        EXPECT_NE(run.text.find(word), std::string::npos) << word;
    }
    EXPECT_NE(answer({"audit", "show", "--help"}).text.find("NAME"), std::string::npos);
    EXPECT_EQ(answer({"-h"}).status, 0);
}

}  // namespace
}  // namespace sandbox::ctl
