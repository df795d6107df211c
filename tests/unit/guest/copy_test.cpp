// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/tar.hpp"
#include "init_fixture.hpp"
#include "sys/file.hpp"

namespace sandbox::guest::test {
namespace {

class GuestCopy : public InitTest {
protected:
    void SetUp() override
    {
        InitTest::SetUp();
        char pattern[] = "/tmp/sandbox-copy-XXXXXX";
        ASSERT_NE(::mkdtemp(pattern), nullptr);
        folder_ = pattern;
        const wire::Bootstrap boot = record();
        ASSERT_EQ(::chown(pattern, boot.permitted_ids[0].uid, boot.permitted_ids[0].gid), 0);
        start_ready();
    }
    void TearDown() override
    {
        InitTest::TearDown();
        EXPECT_TRUE(sys::remove_tree_at(AT_FDCWD, folder_));
    }

    wire::Open copy(wire::SessionKind kind, std::vector<std::string> argv) const
    {
        wire::Open open = shell("");
        open.kind = kind;
        open.argv = std::move(argv);
        return open;
    }
    // A copy_in session fed with frames.
    Ran feed(const wire::Open& open, const std::string& archive)
    {
        Peer peer = stream(wire::Port::session);
        peer.send(open);
        const auto bytes = std::as_bytes(std::span(archive));
        peer.send(wire::Stdin{{bytes.begin(), bytes.end()}});
        peer.send(wire::StdinEof{});
        return collect(peer);
    }

    std::string folder_;
};

std::string one_file(const std::string& name, const std::string& content)
{
    const tar::Entry entry{tar::Kind::file, name, {}, 0640, 0, 0, 1, content.size()};
    return tar::header_of(entry) + content + std::string(tar::padding_of(content.size()), '\0') +
           tar::end_of_archive();
}

}  // namespace

TEST_F(GuestCopy, UnpacksAsTheUserAndPacksAgain)
{
    const std::string archive = one_file("f", "content");
    const Ran in = feed(copy(wire::SessionKind::copy_in, {folder_, "100", "named"}), archive);
    EXPECT_EQ(in.exit, (wire::Exit{wire::ExitOutcome::exited, 0})) << in.err;
    struct stat info{};
    ASSERT_EQ(::stat((folder_ + "/f").c_str(), &info), 0);
    EXPECT_EQ(info.st_uid, record().permitted_ids[0].uid);
    EXPECT_EQ(info.st_mode & 07777, 0640U);
    const Ran out = run(copy(wire::SessionKind::copy_out, {folder_ + "/f", "100"}));
    EXPECT_EQ(out.exit, (wire::Exit{wire::ExitOutcome::exited, 0})) << out.err;
    EXPECT_NE(out.out.find("content"), std::string::npos);
    EXPECT_TRUE(out.out.ends_with(tar::end_of_archive()));
}

TEST_F(GuestCopy, SaysWhatWentWrongInOneLine)
{
    const Ran big = feed(copy(wire::SessionKind::copy_in, {folder_, "3", "named"}),
                         one_file("f", "content"));
    EXPECT_EQ(big.exit.value, 1);
    EXPECT_NE(big.err.find("size limit"), std::string::npos) << big.err;
    const Ran missing = run(copy(wire::SessionKind::copy_out, {folder_ + "/none", "100"}));
    EXPECT_EQ(missing.exit.value, 1);
    EXPECT_NE(missing.err.find("No such file"), std::string::npos) << missing.err;
    expect_serving();
}

TEST_F(GuestCopy, RefusesArgumentsThatAreNoneOfIts)
{
    using Words = std::vector<std::string>;
    for (const Words& words : {Words{"relative", "1", "named"}, Words{"/tmp", "1"},
                               Words{"/tmp", "-1", "named"}, Words{"/tmp", "1x", "named"},
                               Words{"/tmp", "1", "sideways"}, Words{"/tmp", "1", "named", "x"}}) {
        const Ran ran = run(copy(wire::SessionKind::copy_in, words));
        ASSERT_TRUE(ran.error) << words.front();
        EXPECT_EQ(ran.error->code, static_cast<std::uint16_t>(wire::WireError::refused));
    }
    wire::Open root = copy(wire::SessionKind::copy_out, {"/etc", "1"});
    root.uid = 12345;
    EXPECT_TRUE(run(root).error);
}

}  // namespace sandbox::guest::test
