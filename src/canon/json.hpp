// SPDX-License-Identifier: Apache-2.0
#pragma once

// The definition behind canon::Json. Kept out of canon.hpp: most files only pass values on.
#include <nlohmann/json.hpp>

#include "canon/canon.hpp"
