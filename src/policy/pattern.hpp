// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "policy/policy.hpp"

// What a member of a permitted set stands for. The members of each kind form a tree (a path, a
// domain and a user id lie in each other or apart), so a meet of two sets is exact.
namespace sandbox::policy {

enum class Kind { word, path, host, user };

// Whether everything `inner` stands for is among what `outer` stands for. Requires: both in the
// form in which a bundle or profile was read (hosts canonical, paths normal).
bool covers(Kind kind, std::string_view outer, std::string_view inner);

// Whether some member of `set` covers `value`; a set that is absent covers everything.
bool permits(Kind kind, const PermittedSet& set, std::string_view value);

// The greatest set below both, without members that others cover. Commutative, associative and
// idempotent, as a lattice wants it.
PermittedSet meet(Kind kind, const PermittedSet& a, const PermittedSet& b);

// One permitted set of a bundle, by its key.
struct SetKey {
    std::string_view key;
    PermittedSet Bundle::* member;
    Kind kind;
};
// By key. Whoever adds a set adds it here and to the schema: reading, meet, digest and explain
// follow.
inline constexpr SetKey kSetKeys[] = {
    {"capabilities", &Bundle::capabilities, Kind::word},
    {"drivers", &Bundle::drivers, Kind::word},
    {"egress_hosts", &Bundle::egress_hosts, Kind::host},
    {"isolation", &Bundle::isolation, Kind::word},
    {"isolation_classes", &Bundle::isolation_classes, Kind::word},
    {"mount_sources", &Bundle::mount_sources, Kind::path},
    {"network_modes", &Bundle::network_modes, Kind::word},
    {"seccomp", &Bundle::seccomp, Kind::word},
    {"users", &Bundle::users, Kind::user},
};

// "2027-01-01" or "2027-01-01T00:00:00Z" (RFC 3339, full-date or date-time), with days that exist.
bool is_rfc3339(std::string_view text) noexcept;

}  // namespace sandbox::policy
