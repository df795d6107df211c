// SPDX-License-Identifier: Apache-2.0
#include "control/remote.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "canon/json.hpp"
#include "control/operations.hpp"
#include "control/server.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"

// A client and a server of this very library, with a service between them that only plays.
namespace sandbox::control {
namespace {

using supervisor::Steer;

class FakeService final : public supervisor::SandboxService {
public:
    Result<supervisor::PlanOutcome> plan(const supervisor::ProfileText& profile,
                                         const supervisor::Adjustments& adjustments,
                                         const facts::CapabilitySnapshot*) override
    {
        if (profile.text == "wrong") {
            return supervisor::PlanOutcome(
                supervisor::ProfileErrors{{{"code", "key", {profile.file, 1, 2}, "m", "h"}}});
        }
        return supervisor::PlanOutcome(std::vector<resolve::Denial>{
            {resolve::DenialClass::policy_denied, "r", adjustments.argv.at(0), "q", "f", "m", {}}});
    }
    Result<supervisor::PlanOutcome> plan_again(std::string_view) override
    {
        return fail(Code::denied, "no longer");
    }
    Result<supervisor::RunResult> run(const supervisor::RunRequest&) override
    {
        return fail(Code::denied, "refused");
    }
    Result<std::vector<supervisor::Listed>> list(bool all) override
    {
        std::vector<supervisor::Listed> listed(all ? 2 : 1);
        for (auto& one : listed) one.sandbox.state = ledger::State::running;
        return listed;
    }
    Result<canon::Json> inspect(std::string_view reference) override
    {
        if (reference == "crash") raise(SIGKILL);
        if (reference == "nobody") return fail(Code::not_found, "no sandbox 'nobody'");
        return canon::Json{{"name", std::string(reference)}};
    }
    Result<plan::ExecutionPlan> plan_of(std::string_view) override
    {
        return fail(Code::corrupt, "plan");
    }
    Status logs(const supervisor::LogQuery& query, const supervisor::LogSink& sink) override
    {
        if (query.reference == "nobody") return fail(Code::not_found, "nobody");
        for (int i = 0; i < 3; ++i) {
            if (!sink("{\"i\":" + std::to_string(i) + "}")) return {};
        }
        return query.reference == "torn" ? Status(fail(Code::corrupt, "torn")) : Status{};
    }
    Status stop(std::string_view, std::optional<Millis> timeout) override
    {
        return timeout == Millis(1500) ? Status{} : fail(Code::deadline_exceeded, "late");
    }
    Status kill(std::string_view, int signal) override
    {
        return fail(Code::conflict, std::to_string(signal));
    }
    Result<ledger::Exit> wait(std::string_view) override
    {
        return ledger::Exit{3, 0, ledger::ExitReason::exited, 0};
    }
    Status remove(std::string_view, Force force) override
    {
        return force == Force::yes ? Status{} : fail(Code::conflict, "runs");
    }
    Result<supervisor::Report> reconcile() override { return supervisor::Report{.sandboxes = 5}; }
    Result<std::optional<audit::Broken>> verify_audit(audit::Head& head) override
    {
        head.seq = 12;
        return std::optional<audit::Broken>();
    }
    Result<supervisor::SessionResult> exec(const supervisor::ExecRequest& request) override
    {
        supervisor::SessionResult result;
        result.session = request.argv.at(0);
        if (request.argv[0] == "echo") result.exit_status = echo(request.console);
        if (request.argv[0] == "steer") result.exit_status = steered(request.console);
        return result;
    }
    Result<supervisor::CopyResult> copy(const supervisor::CopyRequest& request) override
    {
        supervisor::CopyResult result;
        if (request.way == supervisor::CopyRequest::Way::into) {
            result.bytes = TRY(sys::read_all(request.stream, 1U << 24)).size();
        } else {
            TRY_VOID(sys::write_all(request.stream, std::string(1U << 20, 't')));
        }
        return result;
    }

    // What no case here asks for.
    Result<supervisor::RunResult> create(const supervisor::RunRequest&) override { return none(); }
    Result<supervisor::RunResult> start(std::string_view, supervisor::Attach,
                                        const supervisor::Console&) override
    {
        return none();
    }
    Status restart(std::string_view, std::optional<Millis>) override { return none(); }
    Status pause(std::string_view) override { return fail(Code::unavailable, "no freezer"); }
    Status resume(std::string_view) override { return none(); }
    Status touch(std::string_view) override { return none(); }
    Result<supervisor::Stats> stats(std::string_view) override { return none(); }
    Status events(const supervisor::EventQuery&, const supervisor::EventSink&) override
    {
        return none();
    }
    Result<supervisor::SessionResult> attach(const supervisor::AttachRequest&) override
    {
        return none();
    }
    Result<std::vector<supervisor::SessionInfo>> sessions(std::string_view) override
    {
        return none();
    }
    Status signal_session(std::string_view, std::string_view, int) override { return none(); }
    Result<supervisor::ApplyResult> apply(const supervisor::ApplyRequest&) override
    {
        return none();
    }

private:
    static std::unexpected<Error> none() { return fail(Code::internal, "asked for by nobody"); }
    static int echo(const supervisor::Console& console)
    {
        std::string chunk(4096, '\0');
        ssize_t count = 0;
        while ((count = read(console.in, chunk.data(), chunk.size())) > 0) {
            if (!sys::write_all(console.out, chunk.substr(0, static_cast<std::size_t>(count))))
                break;
        }
        return sys::write_all(console.err, "end of input\n") ? 0 : 1;
    }
    // The sum of what came until a signal ends it.
    static int steered(const supervisor::Console& console)
    {
        int sum = console.rows;
        while (true) {
            if (!sys::poll_one(console.steering->fd(), POLLIN, sys::Deadline::never())) return -1;
            while (const auto steer = console.steering->next()) {
                if (steer->kind == Steer::Kind::resize) sum += steer->rows;
                if (steer->kind == Steer::Kind::signal) return sum + steer->signal;
            }
        }
    }
};

// The server lives in a process of its own, and ends with the test.
class Remote : public ::testing::Test {
protected:
    void SetUp() override
    {
        ASSERT_NE(mkdtemp(folder_.data()), nullptr);
        auto listener = sys::unix_listen(folder_ + "/s", sys::SocketType::stream, 0600, 16);
        ASSERT_TRUE(listener.has_value());
        server_ = fork();
        if (server_ == 0) {
            serve(std::move(*listener));
            _exit(0);
        }
        auto service = RemoteService::connect(folder_ + "/s");
        ASSERT_TRUE(service.has_value()) << service.error().message();
        service_ = std::move(*service);
    }
    void TearDown() override
    {
        service_.reset();
        ::kill(server_, SIGKILL);
        ASSERT_EQ(waitpid(server_, nullptr, 0), server_);
        ASSERT_TRUE(sys::remove_tree_at(AT_FDCWD, folder_).has_value());
    }

    void serve(sys::UniqueFd listener) const
    {
        Loop loop;
        ServerParts parts;
        canon::Json version{{"generation", kApiGeneration}, {"capabilities", canon::Json::array()}};
        for (const Route& route : routes()) {
            if (route.operation == Operation::touch) continue;  // as if it were older
            version["capabilities"].push_back(std::string(to_string(route.operation)));
        }
        parts.version = version.dump();
        parts.work = [this](const Call& call, AnswerSink& sink) {
            perform_once(
                call, folder_,
                [](const Call& one, AnswerSink& into) {
                    perform(
                        one, {},
                        [](supervisor::Need) {
                            return Result<std::unique_ptr<supervisor::SandboxService>>(
                                std::make_unique<FakeService>());
                        },
                        into);
                },
                sink);
        };
        parts.limits.header_time = Millis(300);
        parts.limits.body_time = Millis(300);
        parts.limits.idle_time = Millis(600);
        Server server(loop, std::move(parts));
        if (server.listen(std::move(listener), getegid())) loop.run();
    }

    supervisor::SandboxService& service() { return *service_; }

    std::string folder_ = "/tmp/sandbox-remote-XXXXXX";
    pid_t server_ = -1;
    std::unique_ptr<RemoteService> service_;
};

class ScriptedSteering final : public supervisor::Steering {
public:
    explicit ScriptedSteering(std::vector<Steer> steers) : steers_(std::move(steers))
    {
        auto pipe = sys::make_pipe();
        pipe_ = std::move(*pipe);
        static_cast<void>(sys::write_all(pipe_.write.get(), "x"));
    }
    int fd() const override { return pipe_.read.get(); }
    std::optional<Steer> next() override
    {
        if (at_ == steers_.size()) return std::nullopt;
        return steers_[at_++];
    }

private:
    std::vector<Steer> steers_;
    std::size_t at_ = 0;
    sys::Pipe pipe_;
};

TEST_F(Remote, CallsComeBackAsTheServiceAnsweredThem)
{
    EXPECT_EQ(service().list(false)->size(), 1U);
    EXPECT_EQ(service().list(true)->size(), 2U);
    EXPECT_EQ(service().inspect("a/b c")->at("name"), "a/b c");
    EXPECT_EQ(service().wait("x")->code, 3);
    EXPECT_TRUE(service().stop("x", Millis(1500)).has_value());
    EXPECT_TRUE(service().remove("x", supervisor::SandboxService::Force::yes).has_value());
    EXPECT_EQ(service().reconcile()->sandboxes, 5U);
    audit::Head head;
    EXPECT_FALSE(service().verify_audit(head)->has_value());
    EXPECT_EQ(head.seq, 12U);
}

TEST_F(Remote, FailuresKeepTheirCodeAndWords)
{
    EXPECT_EQ(service().inspect("nobody").error().message(), "no sandbox 'nobody'");
    EXPECT_EQ(service().stop("x", std::nullopt).error().code(), Code::deadline_exceeded);
    EXPECT_EQ(service().kill("x", 12).error().message(), "12");
    EXPECT_EQ(service().plan_of("x").error().code(), Code::corrupt);
    EXPECT_EQ(service().pause("x").error().code(), Code::unavailable);
    EXPECT_EQ(service().plan_again("{}").error().message(), "no longer");
}

TEST_F(Remote, RefusalsAreValues)
{
    supervisor::Adjustments adjustments;
    adjustments.argv = {"the key"};
    const auto denied = service().plan({"f", "t"}, adjustments, nullptr);
    ASSERT_TRUE(denied.has_value());
    EXPECT_EQ(std::get<std::vector<resolve::Denial>>(*denied).at(0).key, "the key");
    const auto wrong = service().plan({"file", "wrong"}, {}, nullptr);
    ASSERT_TRUE(wrong.has_value());
    EXPECT_EQ(std::get<supervisor::ProfileErrors>(*wrong).diagnostics.at(0).at.file, "file");
}

TEST_F(Remote, WhatAnOlderDaemonCannotDoIsRefusedByName)
{
    const auto touched = service().touch("x");
    ASSERT_FALSE(touched.has_value());
    EXPECT_NE(touched.error().message().find("'touch'"), std::string::npos);
}

TEST_F(Remote, LinesComeOneByOneAndEndWhenEnoughWasSeen)
{
    std::vector<std::string> seen;
    EXPECT_TRUE(service().logs({"x", false}, [&](std::string_view line) {
        seen.emplace_back(line);
        return true;
    }));
    EXPECT_EQ(seen, (std::vector<std::string>{"{\"i\":0}", "{\"i\":1}", "{\"i\":2}"}));
    int count = 0;
    EXPECT_TRUE(service().logs({"x", false}, [&](std::string_view) { return ++count < 2; }));
    EXPECT_EQ(count, 2);
    EXPECT_EQ(
        service().logs({"nobody", false}, [](std::string_view) { return true; }).error().code(),
        Code::not_found);
    const auto torn = service().logs({"torn", false}, [](std::string_view) { return true; });
    ASSERT_FALSE(torn.has_value());
    EXPECT_EQ(torn.error().code(), Code::corrupt);
    EXPECT_TRUE(service().list(false).has_value());
}

TEST_F(Remote, ACallWhoseProcessDiesHarmsNoOther)
{
    EXPECT_EQ(service().inspect("crash").error().code(), Code::internal);
    EXPECT_TRUE(service().inspect("x").has_value());
}

TEST_F(Remote, AStreamCarriesEveryByteBothWays)
{
    const sys::UniqueFd in = sys::make_memfd("in").value();
    const sys::UniqueFd out = sys::make_memfd("out").value();
    const sys::UniqueFd err = sys::make_memfd("err").value();
    std::string data;
    for (int i = 0; i < (1 << 20); ++i) data += static_cast<char>(i * 7 + i / 251);
    ASSERT_TRUE(sys::write_all(in.get(), data).has_value());
    ASSERT_EQ(lseek(in.get(), 0, SEEK_SET), 0);
    supervisor::ExecRequest request;
    request.reference = "x";
    request.argv = {"echo"};
    request.console.in = in.get();
    request.console.out = out.get();
    request.console.err = err.get();
    const auto result = service().exec(request);
    ASSERT_TRUE(result.has_value()) << result.error().message();
    EXPECT_EQ(result->exit_status, 0);
    EXPECT_EQ(result->session, "echo");
    ASSERT_EQ(lseek(out.get(), 0, SEEK_SET), 0);
    ASSERT_EQ(lseek(err.get(), 0, SEEK_SET), 0);
    EXPECT_EQ(sys::read_all(out.get(), 1U << 24).value(), data);
    EXPECT_EQ(sys::read_all(err.get(), 1000).value(), "end of input\n");
}

TEST_F(Remote, WhatThePersonDoesReachesTheService)
{
    ScriptedSteering steering({{.kind = Steer::Kind::resize, .rows = 20, .cols = 1},
                               {.kind = Steer::Kind::resize, .rows = 300, .cols = 2},
                               {.kind = Steer::Kind::signal, .signal = 4}});
    supervisor::ExecRequest request;
    request.argv = {"steer"};
    request.terminal = request.console.terminal = true;
    request.console.rows = 1000;
    request.console.steering = &steering;
    const auto result = service().exec(request);
    ASSERT_TRUE(result.has_value()) << result.error().message();
    EXPECT_EQ(result->exit_status, 1324);
}

TEST_F(Remote, ArchivesGoInAndOut)
{
    const sys::UniqueFd tar = sys::make_memfd("tar").value();
    supervisor::CopyRequest request;
    request.reference = "x";
    request.path = "/work";
    request.way = supervisor::CopyRequest::Way::out_of;
    request.stream = tar.get();
    ASSERT_TRUE(service().copy(request).has_value());
    ASSERT_EQ(lseek(tar.get(), 0, SEEK_SET), 0);
    request.way = supervisor::CopyRequest::Way::into;
    const auto copied = service().copy(request);
    ASSERT_TRUE(copied.has_value()) << copied.error().message();
    EXPECT_EQ(copied->bytes, 1U << 20);
}

TEST_F(Remote, OperationIdsAnswerOnce)
{
    const auto raw = [&](const std::string& target, const std::string& key) {
        const sys::UniqueFd socket =
            sys::unix_connect(folder_ + "/s", sys::SocketType::stream).value();
        const std::string text = render_request("POST", target, {}, false, key);
        EXPECT_TRUE(sys::write_all(socket.get(), text).has_value());
        std::string answer(12, '\0');
        EXPECT_EQ(recv(socket.get(), answer.data(), answer.size(), MSG_WAITALL), 12);
        return answer;
    };
    EXPECT_EQ(raw("/v1/sandboxes/x/stop?timeout=1500ms", "k"), "HTTP/1.1 200");
    EXPECT_EQ(raw("/v1/sandboxes/x/stop?timeout=1500ms", "k"), "HTTP/1.1 200");
    EXPECT_EQ(raw("/v1/sandboxes/x/stop?timeout=1s", "k"), "HTTP/1.1 409");
    EXPECT_EQ(raw("/v1/sandboxes/x/stop?timeout=1s", "k2"), "HTTP/1.1 504");
}

TEST_F(Remote, WhoSaysHalfAWordIsCutOff)
{
    const auto said = [&](const std::string& text) {
        const sys::UniqueFd socket =
            sys::unix_connect(folder_ + "/s", sys::SocketType::stream).value();
        EXPECT_TRUE(sys::write_all(socket.get(), text).has_value());
        return sys::read_all(socket.get(), 1U << 16).value();
    };
    EXPECT_TRUE(said("GET /v1/vers").starts_with("HTTP/1.1 408"));
    EXPECT_TRUE(
        said("POST /v1/plan HTTP/1.1\r\nContent-Length: 9\r\n\r\n{").starts_with("HTTP/1.1 408"));
    EXPECT_EQ(said(""), "");
    // Our own connection was idle all that time: the client makes a new one.
    EXPECT_TRUE(service().list(false).has_value());
}

TEST(RemoteSocket, WithoutADaemonThereIsNone)
{
    EXPECT_EQ(RemoteService::connect("/nonexistent/s").error().code(), Code::not_found);
}

}  // namespace
}  // namespace sandbox::control
