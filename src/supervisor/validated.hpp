// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "profile/types.hpp"

namespace sandbox::supervisor {

// Texts that obeyed their schema, by digest of schema and text together, in one small file of the
// run folder. To validate the same config and profile again would cost every launch a millisecond.
// Whoever can write that file can write the ledger beside it: it is believed only where it is ours
// and private, in a folder that is. Losing it, or a race between two writers, costs a validation.
class Validated {
public:
    // `schema` names the schema, as profile::schema() does. An empty folder knows nothing.
    Validated(std::string folder, std::string_view schema, std::string_view text);

    profile::Schema schema() const noexcept
    {
        return known_ ? profile::Schema::known : profile::Schema::check;
    }
    // Call when the text was found good. Failures are nobody's business.
    void remember() const;

private:
    std::string folder_;
    std::string digest_;
    bool known_ = false;
};

}  // namespace sandbox::supervisor
