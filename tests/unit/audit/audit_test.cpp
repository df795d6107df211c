// SPDX-License-Identifier: Apache-2.0
#include "audit/audit.hpp"

#include <gtest/gtest.h>

#include "../resolve/world.hpp"
#include "canon/json.hpp"
#include "profile/profile.hpp"

namespace sandbox::audit {
namespace {

using resolve::test::digest_of;

std::vector<ControlEvidence> evidence()
{
    return {
        {"seccomp.filter", "seccomp-bpf allowlist default", digest_of('1'), digest_of('1'), true},
        {"limit.memory", "cgroup v1 memory.limit_in_bytes", "4096", "8192", false}};
}

// One record of each event.
std::vector<AuditRecord> records()
{
    const Subject subject{SandboxId(std::string(32, 'a')), SandboxName("web"), 2, "op-1",
                          "2026-01-02T03:04:05.678Z"};
    const Refusal refusal{"POLICY_DENIED", "driver-not-permitted", "driver", "oci", "bundle",
                          "ask",           {"org.toml", 3, 1}};
    std::vector<Body> bodies{
        resolved(resolve::test::planned(resolve::test::full())),
        Denied{"web", digest_of('9'), {refusal}},
        Launched{digest_of('8'),
                 "oci",
                 "shared-kernel",
                 true,
                 digest_of('7'),
                 {{"inner", digest_of('6')}},
                 {{"oci.runtime", digest_of('5')}},
                 evidence()},
        LaunchFailed{digest_of('8'), "evidence", "limit.memory does not hold", evidence()},
        SessionOpened{"s1", digest_of('4'), 1000, 1000},
        Violation{"limit.memory", "killed by the kernel", 3},
        Acted{"stop", "asked by sandboxctl"},
        Exited{"", 7, std::nullopt, "exited", 0},
        Cleaned{
            {{"cgroup", "/sandbox/x", true, true, true}, {"file", "/run/x", true, false, false}}},
        Reconciled{4, {{"aaaa", "removed", "gone"}}},
        Restarting{2, 5, 400, "exit status 1"},
        HealthChanged{"unhealthy", 3, "exit status 1"},
        Updated{"sha256:a", "sha256:b", {{"limit.pids", "cgroup v1 pids.max", "9", "9", true}}},
        Applied{"update",
                "/etc/sandbox/profiles.d/web.toml",
                "sha256:b",
                "sha256:a",
                {"resources.pids"},
                "every change can be applied",
                ""}};
    std::vector<AuditRecord> out;
    for (Body& body : bodies) out.push_back({subject, std::move(body)});
    return out;
}

struct Log {
    std::vector<std::string> lines;
    Head head;

    std::string text() const
    {
        std::string out;
        for (const std::string& line : lines) out += line + "\n";
        return out;
    }
};

Log sample()
{
    Log log;
    for (const AuditRecord& record : records()) {
        Line line = next_line(log.head, record).value();
        log.lines.push_back(line.text);
        log.head = line.head;
    }
    return log;
}

TEST(AuditRecord, OfEveryEventSurvivesItsJson)
{
    ASSERT_EQ(records().size(), std::variant_size_v<Body>);
    for (const AuditRecord& record : records()) {
        const auto back = record_from_json(to_json(record));
        ASSERT_TRUE(back) << event_name(record.body) << ": " << back.error().message();
        EXPECT_EQ(*back, record) << event_name(record.body);
    }
}

TEST(AuditRecord, OfEveryEventObeysThePublishedSchema)
{
    for (const std::string& line : sample().lines) {
        for (const Diagnostic& flaw : profile::check_schema("audit", canon::parse(line).value())) {
            ADD_FAILURE() << format(flaw);
        }
    }
}

TEST(AuditRecord, RefusesUnknownAndMissingKeys)
{
    for (const AuditRecord& record : records()) {
        canon::Json json = to_json(record);
        for (const auto& [key, value] : json["body"].items()) {
            canon::Json changed = json;
            changed["body"].erase(key);
            EXPECT_FALSE(record_from_json(changed)) << event_name(record.body) << " " << key;
        }
        json["body"]["extra"] = 1;
        EXPECT_FALSE(record_from_json(json)) << event_name(record.body);
    }
    canon::Json json = to_json(records()[0]);
    json["event"] = "invented";
    EXPECT_FALSE(record_from_json(json));
}

TEST(AuditRecord, EscapesWhatAWorkloadChose)
{
    AuditRecord record = records()[5];
    std::get<Violation>(record.body).detail = "\x1b[2J\xff\n";
    const auto line = next_line({}, record);
    ASSERT_TRUE(line);
    EXPECT_EQ(line->text.find('\x1b'), std::string::npos);
    EXPECT_EQ(line->text.find('\n'), std::string::npos);
    EXPECT_FALSE(verify(line->text + "\n", line->head));
}

TEST(AuditRecord, OfAResolvedPlanSaysThatTheSharedKernelWasAcknowledged)
{
    const auto body = std::get<Resolved>(records()[0].body);
    EXPECT_TRUE(body.shared_kernel_acknowledged);
    EXPECT_EQ(body.isolation_class, "shared-kernel");
    EXPECT_FALSE(body.controls.empty());
}

TEST(AuditChain, OfAWholeLogVerifies)
{
    const Log log = sample();
    EXPECT_EQ(log.head.seq, log.lines.size());
    EXPECT_FALSE(verify(log.text(), log.head));
    EXPECT_FALSE(verify("", {}));
}

TEST(AuditChain, NamesTheFirstChangedLine)
{
    const Log log = sample();
    for (std::size_t i = 0; i < log.lines.size(); ++i) {
        Log changed = log;
        const std::size_t at = changed.lines[i].find("\"web\"");
        ASSERT_NE(at, std::string::npos);
        changed.lines[i][at + 1] = 'x';
        const auto broken = verify(changed.text(), log.head);
        ASSERT_TRUE(broken);
        // A changed line is still well formed: its successor's prev gives it away, at the end the
        // ledger's head does.
        EXPECT_EQ(broken->line, i + 1 < log.lines.size() ? i + 2 : i + 1) << broken->why;
    }
}

TEST(AuditChain, DetectsEveryFlippedByte)
{
    const Log log = sample();
    const std::string text = log.text();
    for (std::size_t i = 0; i < text.size(); ++i) {
        std::string changed = text;
        changed[i] = static_cast<char>(changed[i] ^ 1);
        EXPECT_TRUE(verify(changed, log.head)) << "byte " << i;
    }
}

TEST(AuditChain, DetectsRemovedSwappedAndInsertedLines)
{
    const Log log = sample();
    Log removed = log;
    removed.lines.erase(removed.lines.begin() + 3);
    EXPECT_EQ(verify(removed.text(), log.head)->line, 4U);
    Log swapped = log;
    std::swap(swapped.lines[1], swapped.lines[2]);
    EXPECT_EQ(verify(swapped.text(), log.head)->line, 2U);
    Log inserted = log;
    inserted.lines.insert(inserted.lines.begin() + 5, inserted.lines[4]);
    EXPECT_EQ(verify(inserted.text(), log.head)->line, 6U);
}

TEST(AuditChain, DetectsACutATornTailAndLinesTheLedgerDoesNotKnow)
{
    const Log log = sample();
    Log cut = log;
    cut.lines.pop_back();
    auto broken = verify(cut.text(), log.head);
    ASSERT_TRUE(broken);
    EXPECT_NE(broken->why.find("cut"), std::string::npos);
    broken = verify(log.text().substr(0, log.text().size() - 1), log.head);
    ASSERT_TRUE(broken);
    EXPECT_NE(broken->why.find("torn"), std::string::npos);
    Log longer = log;
    longer.lines.push_back(next_line(log.head, records()[6])->text);
    broken = verify(longer.text(), log.head);
    ASSERT_TRUE(broken);
    EXPECT_EQ(broken->line, log.lines.size() + 1);
}

TEST(AuditChain, ContinuesFromAHead)
{
    const Log log = sample();
    Verifier first;
    for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(first.feed(log.lines[i]));
    Verifier second(first.head());
    for (std::size_t i = 4; i < log.lines.size(); ++i) EXPECT_TRUE(second.feed(log.lines[i]));
    EXPECT_FALSE(second.finish(log.head));
}

TEST(AuditReceipt, IsCompleteWhenAllThatWasMadeIsGone)
{
    Cleaned cleaned = std::get<Cleaned>(records()[8].body);
    EXPECT_FALSE(cleaned.complete());
    cleaned.items[1].gone = true;
    EXPECT_TRUE(cleaned.complete());
}

TEST(AuditRender, NamesEventSandboxAndDetail)
{
    for (const AuditRecord& record : records()) {
        const std::string text = render(record);
        EXPECT_NE(text.find(event_name(record.body)), std::string::npos);
        EXPECT_NE(text.find("web"), std::string::npos);
        EXPECT_GE(std::count(text.begin(), text.end(), '\n'), 2) << text;
    }
    EXPECT_NE(render(records()[8]).find("LEFT: file /run/x"), std::string::npos);
}

TEST(AuditRender, PutsControlsThatDoNotHoldFirst)
{
    const std::string text = render_evidence(evidence());
    EXPECT_LT(text.find("NOT HELD"), text.find("seccomp.filter"));
    EXPECT_NE(text.find("8192  (planned: 4096)"), std::string::npos) << text;
}

TEST(AuditRender, SaysWhetherTheLogIsWhole)
{
    EXPECT_NE(render_verdict(std::nullopt, sample().head).find("whole"), std::string::npos);
    EXPECT_NE(render_verdict(Broken{7, "cut"}, {}).find("line 7: cut"), std::string::npos);
}

}  // namespace
}  // namespace sandbox::audit
