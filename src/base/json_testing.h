// For tests: JSON written in the source.
#pragma once

#include <string_view>

#include <gtest/gtest.h>

#include "base/json.h"

namespace sluice::testing {

// The value of `text`; the test fails where it is not JSON.
inline json::Value Json(std::string_view text) {
  auto value = json::Parse(text);
  EXPECT_TRUE(value) << text;
  return value ? *std::move(value) : json::Value();
}

}  // namespace sluice::testing
