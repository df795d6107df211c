// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>

#include "fuzz.hpp"

// Runs every checked-in input, then seeded mutations of them, through every fuzz target. Cheap and
// the same each time: it keeps found bugs found; dev/fuzz looks for new ones.
namespace sandbox::fuzz {

namespace {

namespace fs = std::filesystem;

struct Broken : std::runtime_error {
    using std::runtime_error::runtime_error;
};

std::vector<Target>& targets()
{
    static std::vector<Target> all;
    return all;
}

std::vector<std::pair<std::string, std::string>> corpus_of(std::string_view target)
{
    std::vector<std::pair<std::string, std::string>> inputs;
    const fs::path folder = fs::path(SANDBOX_FUZZ_CORPUS) / target;
    if (!fs::is_directory(folder)) return inputs;
    for (const auto& entry : fs::directory_iterator(folder)) {
        std::ifstream file(entry.path(), std::ios::binary);
        inputs.emplace_back(
            entry.path().filename().string(),
            std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
    }
    std::ranges::sort(inputs);
    return inputs;
}

// What libFuzzer's mutators do most, without its feedback.
class Mutator {
public:
    explicit Mutator(std::uint64_t seed) : random_(seed) {}

    std::size_t below(std::size_t limit)
    {
        return static_cast<std::size_t>(random_() % std::max<std::size_t>(1, limit));
    }

    std::string mutate(std::string input, const std::string& other)
    {
        const std::size_t edits = 1 + below(4);
        for (std::size_t i = 0; i < edits; ++i) edit(input, other);
        return input;
    }

private:
    void edit(std::string& input, const std::string& other)
    {
        static constexpr std::array<std::string_view, 18> kWords{"\"",
                                                                 "\\",
                                                                 "\n",
                                                                 "\r\n",
                                                                 "\xEF\xBB\xBF",
                                                                 "\xED\xA0\x80",
                                                                 "{",
                                                                 "[",
                                                                 "9223372036854775808",
                                                                 "-1",
                                                                 "\xFF\xFF\xFF\xFF",
                                                                 "..",
                                                                 "*",
                                                                 ":",
                                                                 "= 0\n",
                                                                 "\x1B[2J",
                                                                 "\xE2\x80\xAE",
                                                                 "\\u0000"};
        const std::size_t at = below(input.size() + 1);
        switch (below(7)) {
        case 0:
            if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
            return;
        case 1:
            if (at < input.size()) input[at] = static_cast<char>(random_());
            return;
        case 2: input.erase(at, 1 + below(16)); return;
        case 3: input.insert(at, kWords[below(kWords.size())]); return;
        case 4: input.insert(at, 1, static_cast<char>(random_())); return;
        case 5:
            if (!other.empty()) input.insert(at, other.substr(below(other.size()), 1 + below(64)));
            return;
        default: input.insert(at, input.substr(below(input.size() + 1), 1 + below(32))); return;
        }
    }

    std::mt19937_64 random_;
};

// A broken input becomes a file that the libFuzzer program takes as its argument.
std::string kept(const Target& target, const std::string& input)
{
    const fs::path path = fs::temp_directory_path() / ("broken-" + std::string(target.name));
    std::ofstream(path, std::ios::binary) << input;
    return path.string();
}

// What runs now, for the handler of a crash.
std::string_view running_target;
std::string_view running_input;

// Writes the input beside the message before the crash takes its course. Async-signal-safe.
void keep_on_crash(int signal)
{
    std::array<char, 64> path{"/tmp/broken-"};
    std::copy_n(running_target.data(), std::min<std::size_t>(running_target.size(), 32),
                path.begin() + 12);
    const int fd = open(path.data(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const std::string_view says = "\nthe input that crashed is in ";
    static_cast<void>(write(fd, running_input.data(), running_input.size()) +
                      write(STDERR_FILENO, says.data(), says.size()) +
                      write(STDERR_FILENO, path.data(), std::strlen(path.data())) +
                      write(STDERR_FILENO, "\n", 1));
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

bool holds(const Target& target, const std::string& name, const std::string& input)
{
    running_target = target.name;
    running_input = input;
    for (const int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS}) std::signal(signal, keep_on_crash);
    try {
        target.run(input);
        return true;
    } catch (const std::exception& error) {
        ADD_FAILURE() << target.name << ", " << name << ": " << error.what() << "; the input is in "
                      << kept(target, input);
        return false;
    }
}

class Replay : public ::testing::TestWithParam<Target> {};

TEST_P(Replay, HoldsItsOracleOnEveryCorpusInput)
{
    const auto inputs = corpus_of(GetParam().name);
    ASSERT_GE(inputs.size(), 3U) << "a target without a corpus proves little";
    holds(GetParam(), "empty", "");
    for (const auto& [name, input] : inputs) holds(GetParam(), name, input);
}

TEST_P(Replay, HoldsItsOracleOnSeededMutations)
{
    const auto inputs = corpus_of(GetParam().name);
    ASSERT_FALSE(inputs.empty());
    const char* more = std::getenv("SANDBOX_FUZZ_MUTATIONS");
    const std::size_t rounds = more == nullptr ? GetParam().mutations
                                               : std::strtoul(more, nullptr, 10);
    Mutator mutator(20260102);
    int failures = 0;
    for (std::size_t i = 0; i < rounds && failures < 3; ++i) {
        const auto& [name, input] = inputs[mutator.below(inputs.size())];
        const auto& other = inputs[mutator.below(inputs.size())].second;
        const std::string label = name + ", mutation " + std::to_string(i);
        if (!holds(GetParam(), label, mutator.mutate(input, other))) ++failures;
    }
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Replay, ::testing::ValuesIn(targets()),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace

Registration::Registration(std::string_view name, Run run, std::size_t mutations)
{
    targets().push_back({name, run, mutations});
}

void broken(const char* file, int line, const char* what)
{
    throw Broken(std::string(file) + ":" + std::to_string(line) + ": does not hold: " + what);
}

}  // namespace sandbox::fuzz
