// SPDX-License-Identifier: Apache-2.0
#include "ctl/command_tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "../ledger/support.hpp"
#include "canon/json.hpp"
#include "ctl/command_line.hpp"
#include "ctl/completion.hpp"

namespace sandbox::ctl {
namespace {

const OptionDoc& option_of(const CommandDoc& command, const std::string& name)
{
    static const OptionDoc kNone;
    const auto found = std::ranges::find_if(command.options, [&](const OptionDoc& option) {
        return std::ranges::find(option.names, name) != option.names.end();
    });
    return found == command.options.end() ? kNone : *found;
}

TEST(CommandTree, KnowsLeavesByTheirPath)
{
    const CommandDoc tree = command_tree();
    for (const char* path : {"run", "ps", "audit show", "config init", "completion"}) {
        const CommandDoc* command = find_command(tree, path);
        ASSERT_NE(command, nullptr) << path;
        EXPECT_TRUE(command->is_leaf()) << path;
        EXPECT_FALSE(command->help.empty()) << path;
    }
    EXPECT_EQ(find_command(tree, "dance"), nullptr);
    EXPECT_FALSE(find_command(tree, "audit")->is_leaf());
}

TEST(CommandTree, DescribesOptionsAsTheParserTakesThem)
{
    const CommandDoc tree = command_tree();
    const CommandDoc& logs = *find_command(tree, "logs");
    const OptionDoc& stream = option_of(logs, "--stream");
    EXPECT_EQ(stream.choices.size(), 3U);
    EXPECT_EQ(stream.fallback, "both");
    EXPECT_EQ(stream.words, WordKind::choice);
    EXPECT_TRUE(option_of(logs, "-f").value.empty());
    const CommandDoc& run = *find_command(tree, "run");
    EXPECT_TRUE(option_of(run, "-e").repeatable);
    EXPECT_EQ(option_of(run, "--overlay").words, WordKind::file);
    EXPECT_EQ(run.arguments.front().words, WordKind::profile);
    EXPECT_FALSE(run.arguments.front().required);
    EXPECT_TRUE(find_command(tree, "rm")->arguments.front().required);
}

TEST(CommandTree, ListsEveryLeafOnceByGroups)
{
    const CommandDoc tree = command_tree();
    const auto list = leaves(tree);
    std::vector<std::string> groups;
    std::vector<std::string> paths;
    for (const CommandDoc* command : list) {
        paths.push_back(command->path);
        if (groups.empty() || groups.back() != command->group) groups.push_back(command->group);
    }
    std::vector<std::string> once = groups;
    std::ranges::sort(once);
    EXPECT_EQ(std::ranges::adjacent_find(once), once.end()) << "a group is split";
    std::ranges::sort(paths);
    EXPECT_EQ(std::ranges::adjacent_find(paths), paths.end()) << "a verb is listed twice";
    EXPECT_GT(paths.size(), 15U);
}

TEST(CommandTree, HelpShowsWhatTheParserTakesAndFitsATerminal)
{
    const CommandDoc tree = command_tree();
    for (const CommandDoc* command : leaves(tree)) {
        const std::string help = render_help(tree, *command);
        EXPECT_NE(help.find("Usage: sandboxctl " + command->path), std::string::npos);
        for (const OptionDoc& option : command->options) {
            for (const std::string& name : option.names) {
                EXPECT_NE(help.find(name), std::string::npos) << command->path << " " << name;
            }
        }
    }
    std::string line;
    for (const char c : render_help(tree, tree)) {
        if (c != '\n') {
            line += c;
            continue;
        }
        EXPECT_LE(line.size(), 90U) << line;  // 80 columns; some characters are several bytes
        line.clear();
    }
}

TEST(CommandTree, SaysTheSameInJson)
{
    const canon::Json json = to_json(command_tree());
    EXPECT_EQ(json.at("verbs").size(), leaves(command_tree()).size());
    EXPECT_FALSE(json.dump().find("__complete") != std::string::npos);
}

TEST(Completion, ScriptsNameEveryVerbAndOption)
{
    const CommandDoc tree = command_tree();
    for (const Shell shell : {Shell::bash, Shell::zsh, Shell::fish}) {
        const std::string script = completion_script(tree, shell);
        for (const CommandDoc* command : leaves(tree)) {
            EXPECT_NE(script.find(command->path), std::string::npos) << command->path;
            for (const OptionDoc& option : command->options) {
                const std::string name = option.names.back();
                const std::string bare = name.substr(name.find_first_not_of('-'));
                EXPECT_NE(script.find(bare), std::string::npos) << command->path << " " << name;
            }
        }
    }
}

class CompletedWords : public ::testing::Test {
protected:
    CompletedWords()
    {
        paths_.state = dir_.path() + "/state";
        paths_.profiles = dir_.path() + "/etc";
        paths_.vendor_profiles = dir_.path() + "/usr";
        for (const std::string& folder : {paths_.profiles, paths_.vendor_profiles}) {
            std::filesystem::create_directories(folder);
        }
    }
    void profile(const std::string& path) { std::ofstream(path) << "version = 1\n"; }

    ledger::test::TempDir dir_;
    supervisor::Paths paths_;
};

TEST_F(CompletedWords, ProfilesOfBothFoldersAreOfferedOnceAndOddNamesNever)
{
    profile(paths_.profiles + "/web.toml");
    profile(paths_.profiles + "/$(reboot).toml");
    profile(paths_.profiles + "/.hidden.toml");
    profile(paths_.profiles + "/readme.md");
    profile(paths_.vendor_profiles + "/web.toml");
    profile(paths_.vendor_profiles + "/worker.toml");
    EXPECT_EQ(complete_words(paths_, "profile", ""), (std::vector<std::string>{"web", "worker"}));
    EXPECT_EQ(complete_words(paths_, "profile", "wo"), std::vector<std::string>{"worker"});
}

TEST_F(CompletedWords, WithoutAStateFolderThereIsNothingAndNothingIsMade)
{
    EXPECT_TRUE(complete_words(paths_, "sandbox", "").empty());
    EXPECT_FALSE(std::filesystem::exists(paths_.state));
    EXPECT_TRUE(complete_words(paths_, "moon", "").empty());
}

TEST_F(CompletedWords, SignalsAreOfferedByName)
{
    EXPECT_EQ(complete_words(paths_, "signal", "KI"), std::vector<std::string>{"KILL"});
}

TEST_F(CompletedWords, SandboxesAreOfferedByNameAndByIdWhereTheWordCouldBeOne)
{
    paths_.state = dir_.path();
    {
        ledger::Ledger ledger = ledger::test::open(dir_);
        ledger::test::add(ledger, ledger::test::sandbox(0xabc1, "web"));
    }
    EXPECT_EQ(complete_words(paths_, "sandbox", ""), std::vector<std::string>{"web"});
    const std::string id = ledger::test::id(0xabc1).str();
    EXPECT_EQ(complete_words(paths_, "sandbox", id.substr(0, 4)), std::vector<std::string>{id});
    EXPECT_TRUE(complete_words(paths_, "sandbox", "x").empty());
}

}  // namespace
}  // namespace sandbox::ctl
