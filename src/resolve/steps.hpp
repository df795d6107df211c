// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "resolve/draft.hpp"

// The steps of resolution, one concern each, in the order resolve() calls them.
namespace sandbox::resolve {

// Each fills its part of the plan and adds its denials; none reads a later step's part.
void check_profile(Draft& draft);      // what the schema and the semantic checks refuse
void resolve_driver(Draft& draft);     // driver, isolation class, artifacts
void check_unsupported(
    Draft& draft);  // typed and planned for, enforced in no driver of this release
void resolve_process(Draft& draft);
void resolve_rootfs(Draft& draft);
void resolve_mounts(Draft& draft);
void resolve_secrets(Draft& draft);  // after the mounts: folders of their own
void resolve_network(Draft& draft);
void resolve_resources(Draft& draft);
void resolve_security(Draft& draft);
void check_policy(Draft& draft);  // organisation bundles, last: they see the finished choices
void list_controls(Draft& draft);  // requirement -> mechanism, from the finished plan

// Sorted by class, key, reason, fact; each once.
void order(std::vector<Denial>& denials);

}  // namespace sandbox::resolve
