// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "fixture.hpp"

namespace sandbox::driver::test {

TEST(OciCompile, GivesTheSameBytesTwice)
{
    const auto plan = sealed(full_content());
    const auto first = oci::compile(plan, sample_binding());
    const auto second = oci::compile(plan, sample_binding());
    ASSERT_TRUE(first) << first.error().message();
    ASSERT_TRUE(second);
    EXPECT_EQ(*first, *second);
}

}  // namespace sandbox::driver::test
