// SPDX-License-Identifier: Apache-2.0
#include "probe/delegation.hpp"

#include <gtest/gtest.h>

namespace sandbox::probe {
namespace {

using sys::cgroup::Hierarchy;
using sys::cgroup::Layout;
using sys::cgroup::Version;

CgroupView first_version()
{
    CgroupView view;
    view.uid = 1000;
    view.host.layout = Layout::hybrid;
    for (const char* name : {"freezer", "memory", "pids"}) {
        Hierarchy hierarchy;
        hierarchy.version = Version::v1;
        hierarchy.mount = std::string("/sys/fs/cgroup/") + name;
        hierarchy.controllers = {name};
        view.host.hierarchies.push_back(hierarchy);
        view.own.push_back({static_cast<std::uint32_t>(view.own.size()) + 1, {name}, "/users/ann"});
        view.writable[hierarchy.mount + "/users/ann"] = true;
    }
    return view;
}

CgroupView second_version(const std::string& own)
{
    CgroupView view;
    view.uid = 1000;
    view.host.layout = Layout::v2;
    Hierarchy hierarchy;
    hierarchy.mount = "/sys/fs/cgroup";
    hierarchy.controllers = {"cpu", "memory", "pids"};
    view.host.hierarchies.push_back(hierarchy);
    view.own.push_back({0, {}, own});
    return view;
}

TEST(Delegation, OnTheFirstVersionItIsThatOfTheProcessInEveryHierarchy)
{
    EXPECT_EQ(choose_delegation(first_version()).path, "/users/ann");
}

TEST(Delegation, OneHierarchyThatIsNotTheUsersSpoilsIt)
{
    CgroupView view = first_version();
    view.writable["/sys/fs/cgroup/memory/users/ann"] = false;
    const Delegation none = choose_delegation(view);
    EXPECT_EQ(none.path, "");
    EXPECT_NE(none.reason.find("/sys/fs/cgroup/memory/users/ann"), std::string::npos);
    EXPECT_NE(none.reason.find("uid 1000"), std::string::npos);
}

TEST(Delegation, TwoPlacesAreNone)
{
    CgroupView view = first_version();
    view.own[2].path = "/users/eve";
    view.writable["/sys/fs/cgroup/pids/users/eve"] = true;
    const Delegation none = choose_delegation(view);
    EXPECT_EQ(none.path, "");
    EXPECT_NE(none.reason.find("/users/eve"), std::string::npos);
}

TEST(Delegation, TheRootIsNobodysToGive)
{
    CgroupView view = first_version();
    for (auto& line : view.own) line.path = "/";
    for (const auto& hierarchy : view.host.hierarchies) view.writable[hierarchy.mount + "/"] = true;
    EXPECT_EQ(choose_delegation(view).path, "");
    CgroupView unified = second_version("/");
    unified.writable["/sys/fs/cgroup/"] = true;
    EXPECT_EQ(choose_delegation(unified).path, "");
}

TEST(Delegation, OnTheSecondVersionItIsTheNearestEmptyOneUpwards)
{
    CgroupView view = second_version("/u/scope/caller");
    for (const char* path : {"/u/scope/caller", "/u/scope", "/u"})
        view.writable[std::string("/sys/fs/cgroup") + path] = true;
    for (const char* path : {"/u/scope", "/u"}) {
        view.vacant[std::string("/sys/fs/cgroup") + path] = true;
        view.given[std::string("/sys/fs/cgroup") + path] = true;
    }
    EXPECT_EQ(choose_delegation(view).path, "/u/scope");
    // This process alone: it could step aside, in one that is its own to divide.
    view.vacant["/sys/fs/cgroup/u/scope/caller"] = true;
    EXPECT_EQ(choose_delegation(view).path, "/u/scope");
    view.given["/sys/fs/cgroup/u/scope/caller"] = true;
    EXPECT_EQ(choose_delegation(view).path, "/u/scope/caller");
}

TEST(Delegation, WhatAManagerOfTheUsersKeepsIsNotTaken)
{
    CgroupView view = second_version("/user@1000.service/app.slice/shell.scope");
    for (const char* path : {"/user@1000.service/app.slice/shell.scope",
                             "/user@1000.service/app.slice", "/user@1000.service"}) {
        view.writable[std::string("/sys/fs/cgroup") + path] = true;
        view.vacant[std::string("/sys/fs/cgroup") + path] = true;
    }
    EXPECT_EQ(choose_delegation(view).path, "");
}

TEST(Delegation, WhatIsNotTheUsersEndsTheSearch)
{
    CgroupView view = second_version("/system/session");
    view.writable["/sys/fs/cgroup/system/session"] = true;
    view.vacant["/sys/fs/cgroup/system"] = true;
    const Delegation none = choose_delegation(view);
    EXPECT_EQ(none.path, "");
    EXPECT_NE(none.reason.find("holds no other process"), std::string::npos);
    view.writable.clear();
    EXPECT_NE(choose_delegation(view).reason.find("not writable"), std::string::npos);
}

TEST(Delegation, AHostWithoutCgroupsHasNone) { EXPECT_EQ(choose_delegation({}).path, ""); }

}  // namespace
}  // namespace sandbox::probe
