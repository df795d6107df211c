// SPDX-License-Identifier: Apache-2.0
#include "shim/log_worker.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "shim/log_writer.hpp"
#include "support.hpp"
#include "sys/file.hpp"

namespace sandbox::shim {
namespace {

using test::records_of;
using test::TempDir;

sys::Deadline shortly() { return sys::Deadline::after(Millis{20'000}); }

// A worker between a workload's two pipes and a client's two.
class Worker : public testing::Test {
protected:
    void start(Output out_as, Output err_as)
    {
        sys::Pipe out = VALUE(sys::make_pipe());
        sys::Pipe err = VALUE(sys::make_pipe());
        sys::Pipe out_copy = VALUE(sys::make_pipe());
        sys::Pipe err_copy = VALUE(sys::make_pipe());
        LogInput out_input{std::move(out.read), {}, out_as};
        LogInput err_input{std::move(err.read), {}, err_as};
        if (out_as != Output::log_only) out_input.copy = std::move(out_copy.write);
        if (err_as != Output::log_only) err_input.copy = std::move(err_copy.write);
        // Not "shim:ID": a name that the argument of this test could really have.
        marker_ = "shim:" + ledger::test::id(1).str();
        auto worker = start_log_worker(dir_.file("logs"), {}, std::move(out_input),
                                       std::move(err_input), marker_.data());
        ASSERT_TRUE(worker) << worker.error().message();
        worker_.emplace(std::move(*worker));
        out_ = std::move(out.write);
        err_ = std::move(err.write);
        client_out_ = std::move(out_copy.read);
        client_err_ = std::move(err_copy.read);
    }
    ~Worker() override
    {
        out_.reset();
        err_.reset();
        client_out_.reset();
        client_err_.reset();
        if (!worker_) return;
        const auto ended = worker_->process.wait_exit(shortly());
        EXPECT_TRUE(ended && *ended) << "the worker lives on without anybody to drain";
        if (ended && !*ended) static_cast<void>(worker_->process.send_signal(SIGKILL));
    }
    Worker() = default;
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    // Both outputs end; waits until the worker says that everything is written.
    void finish()
    {
        out_.reset();
        err_.reset();
        ASSERT_NE(VALUE(sys::poll_one(worker_->ended.get(), POLLIN, shortly())), 0);
        worker_->spares.reset();
    }
    std::vector<LogRecord> records() const { return records_of(dir_.file("logs/log.jsonl")); }
    std::string text_of(Stream stream) const
    {
        std::string text;
        for (const LogRecord& r : records()) {
            if (r.stream != stream) continue;
            EXPECT_EQ(r.offset, text.size());
            text += r.log;
            if (!r.partial) text += '\n';
        }
        return text;
    }

    TempDir dir_;
    std::string marker_;
    std::optional<LogWorker> worker_;
    sys::UniqueFd out_;
    sys::UniqueFd err_;
    sys::UniqueFd client_out_;
    sys::UniqueFd client_err_;
};

TEST_F(Worker, KeepsBothStreamsApartThroughTheLastPartialLine)
{
    start(Output::log_only, Output::log_only);
    EXPECT_OK(sys::write_all(out_.get(), "out one\nout two"));
    EXPECT_OK(sys::write_all(err_.get(), "err one\n"));
    finish();
    EXPECT_EQ(text_of(Stream::out), "out one\nout two");
    EXPECT_EQ(text_of(Stream::err), "err one\n");
}

TEST_F(Worker, KeepsEveryByteOfBinaryOutputAndGivesAPlainClientTheSame)
{
    start(Output::plain, Output::log_only);
    std::string bytes;
    for (int i = 0; i < 2000; ++i) bytes += static_cast<char>(i * 7);
    EXPECT_OK(sys::write_all(out_.get(), bytes));
    finish();
    EXPECT_EQ(text_of(Stream::out), bytes);
    EXPECT_EQ(VALUE(sys::read_all(client_out_.get(), 1U << 20)), bytes);
}

TEST_F(Worker, ShowsATerminalNoEscapeThatCouldDriveIt)
{
    start(Output::log_only, Output::terminal);
    const std::string evil = "\x1b]0;title\x07\x1b[2Jtext\n\xc2\x9b"
                             "31m gr\xc3\xbc";
    EXPECT_OK(sys::write_all(err_.get(), evil));
    finish();
    EXPECT_EQ(text_of(Stream::err), evil);
    const std::string seen = VALUE(sys::read_all(client_err_.get(), 1U << 20));
    EXPECT_EQ(seen.find('\x1b'), std::string::npos);
    EXPECT_EQ(seen.find('\x07'), std::string::npos);
    EXPECT_EQ(seen.find("\xc2\x9b"), std::string::npos);
    EXPECT_NE(seen.find("text\n"), std::string::npos);
    EXPECT_TRUE(seen.ends_with("gr\xc3\xbc")) << seen;
}

TEST_F(Worker, EndsOnlyWhenBothStreamsHaveEnded)
{
    start(Output::log_only, Output::plain);
    EXPECT_OK(sys::write_all(out_.get(), "first\n"));
    out_.reset();
    // A byte through the other stream proves that the worker went past the first one's end.
    EXPECT_OK(sys::write_all(err_.get(), "second\n"));
    std::string seen(16, '\0');
    ASSERT_EQ(read(client_err_.get(), seen.data(), seen.size()), 7);
    EXPECT_EQ(VALUE(sys::poll_one(worker_->ended.get(), POLLIN, sys::Deadline::after(Millis{0}))),
              0);
    finish();
    EXPECT_EQ(text_of(Stream::out), "first\n");
    EXPECT_EQ(text_of(Stream::err), "second\n");
}

TEST_F(Worker, GoesOnLoggingWhenItsClientLeaves)
{
    start(Output::plain, Output::plain);
    client_out_.reset();
    client_err_.reset();
    std::string much;
    for (int i = 0; i < 20'000; ++i) much += "line " + std::to_string(i) + "\n";
    EXPECT_OK(sys::write_all(out_.get(), much));
    EXPECT_OK(sys::write_all(err_.get(), "one more\n"));
    finish();
    EXPECT_EQ(text_of(Stream::out), much);
    EXPECT_EQ(text_of(Stream::err), "one more\n");
}

TEST_F(Worker, LogsAtOnceWhatAClientThatStoppedReadingDoesNotTake)
{
    start(Output::plain, Output::log_only);
    // More than the client's pipe holds, and then a partial line that only the log can show.
    const std::string block = std::string(1023, 'x') + "\n";
    std::string all;
    while (all.size() < (96U << 10)) {
        EXPECT_OK(sys::write_all(out_.get(), block));
        all += block;
    }
    const auto deadline = shortly();
    while (text_of(Stream::out).size() < (65U << 10) && !deadline.passed()) {
        static_cast<void>(
            sys::poll_one(worker_->ended.get(), POLLIN, sys::Deadline::after(Millis{5})));
    }
    // At least one chunk beyond what fits into the client's pipe is in the log already.
    EXPECT_GE(text_of(Stream::out).size(), 65U << 10);
    client_out_.reset();
    finish();
    EXPECT_EQ(text_of(Stream::out), all);
}

TEST_F(Worker, CarriesItsOwnMarkerInPlaceOfTheShims)
{
    start(Output::log_only, Output::log_only);
    EXPECT_TRUE(marker_.starts_with("shim:")) << "the parent's own marker changed";
    // The name proves that the child is past its renaming.
    const std::string proc = "/proc/" + std::to_string(worker_->process.pid());
    const auto deadline = shortly();
    while (test::read_bytes(proc + "/comm") != "sandbox-log\n" && !deadline.passed()) {
        static_cast<void>(
            sys::poll_one(worker_->ended.get(), POLLIN, sys::Deadline::after(Millis{1})));
    }
    EXPECT_EQ(test::read_bytes(proc + "/comm"), "sandbox-log\n");
    // The marker's memory is the same address in the child.
    std::ifstream memory(proc + "/mem", std::ios::binary);
    memory.seekg(static_cast<std::streamoff>(reinterpret_cast<std::uintptr_t>(marker_.data())));
    std::string seen(marker_.size(), '\0');
    memory.read(seen.data(), static_cast<std::streamsize>(seen.size()));
    EXPECT_STREQ(seen.c_str(), ("log:" + ledger::test::id(1).str()).c_str());
}

TEST_F(Worker, HoldsNoDescriptorButItsOwn)
{
    const sys::Pipe stray = VALUE(sys::make_pipe());
    start(Output::plain, Output::log_only);
    EXPECT_OK(sys::write_all(out_.get(), "x\n"));
    std::string seen(2, '\0');
    ASSERT_EQ(read(client_out_.get(), seen.data(), seen.size()), 2);
    const auto proc = VALUE(
        sys::open_dir("/proc/" + std::to_string(worker_->process.pid()) + "/fd"));
    const auto numbers = VALUE(sys::open_numbers(proc.get(), 1000));
    // Standard streams, two inputs, one copy, the liveness pipe, log folder and log file.
    std::size_t beyond_standard = 0;
    for (const int n : numbers) beyond_standard += n > 2 ? 1 : 0;
    EXPECT_EQ(beyond_standard, 6U);
}

TEST_F(Worker, IsFollowedByAnotherWhenItIsKilled)
{
    start(Output::plain, Output::log_only);
    EXPECT_OK(sys::write_all(out_.get(), "one\n"));
    std::string seen(4, '\0');
    ASSERT_EQ(read(client_out_.get(), seen.data(), seen.size()), 4);
    const int first = worker_->process.pid();
    EXPECT_OK(worker_->process.send_signal(SIGKILL));
    ASSERT_TRUE(VALUE(worker_->process.wait_ended(shortly())));
    EXPECT_OK(sys::write_all(out_.get(), "two\n"));
    EXPECT_TRUE(VALUE(revive(*worker_, marker_.data())));
    EXPECT_NE(worker_->process.pid(), first);
    ASSERT_EQ(read(client_out_.get(), seen.data(), seen.size()), 4);
    EXPECT_EQ(seen, "two\n");
    out_.reset();
    err_.reset();
    ASSERT_TRUE(VALUE(worker_->process.wait_ended(shortly())));
    EXPECT_FALSE(VALUE(revive(*worker_, marker_.data()))) << "it had drained both streams";
    EXPECT_FALSE(worker_->spares);
    const auto written = records();
    ASSERT_EQ(written.size(), 3U);
    EXPECT_EQ(written[0].log, "one");
    EXPECT_EQ(written[1].stream, Stream::supervisor);
    EXPECT_EQ(written[1].dropped, 0U);
    EXPECT_EQ(written[2].log, "two");
    EXPECT_EQ(written[2].offset, 4U);
    worker_.reset();
}

TEST_F(Worker, SaysHowMuchAKilledOneHeld)
{
    start(Output::plain, Output::log_only);
    EXPECT_OK(sys::write_all(out_.get(), "half a line"));
    std::string seen(11, '\0');
    ASSERT_EQ(read(client_out_.get(), seen.data(), seen.size()), 11);
    EXPECT_OK(worker_->process.send_signal(SIGKILL));
    ASSERT_TRUE(VALUE(worker_->process.wait_ended(shortly())));
    EXPECT_TRUE(VALUE(revive(*worker_, marker_.data())));
    EXPECT_OK(sys::write_all(out_.get(), ", and its end\n"));
    out_.reset();
    err_.reset();
    ASSERT_TRUE(VALUE(worker_->process.wait_ended(shortly())));
    const auto written = records();
    ASSERT_EQ(written.size(), 2U);
    EXPECT_EQ(written[0].dropped, 11U);
    EXPECT_EQ(written[1].log, ", and its end");
    EXPECT_EQ(written[1].offset, 11U);
}

TEST_F(Worker, IsNotFollowedForEverWhereNoneLives)
{
    start(Output::log_only, Output::log_only);
    int followers = -1;
    do {
        EXPECT_OK(worker_->process.send_signal(SIGKILL));
        ASSERT_TRUE(VALUE(worker_->process.wait_ended(shortly())));
        ++followers;
        ASSERT_LT(followers, 20);
    } while (VALUE(revive(*worker_, marker_.data())));
    EXPECT_GT(followers, 3);
    EXPECT_FALSE(worker_->spares);
    worker_.reset();
}

TEST(StartLogWorker, ReportsAFolderItCannotUseBeforeAnythingRuns)
{
    const TempDir dir;
    test::write_bytes(dir.file("logs"), "a file");
    std::string marker = "shim:x";
    sys::Pipe out = VALUE(sys::make_pipe());
    sys::Pipe err = VALUE(sys::make_pipe());
    EXPECT_FALSE(start_log_worker(dir.file("logs"), {}, {std::move(out.read), {}, Output::log_only},
                                  {std::move(err.read), {}, Output::log_only}, marker.data()));
    EXPECT_EQ(marker, "shim:x");
}

}  // namespace
}  // namespace sandbox::shim
