// Test helpers that parse JSON.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/json.h"

namespace sluice::testing {

// Parses `text`; the test fails if it is not valid JSON.
inline json::Value Json(std::string_view text) {
  auto value = json::Parse(text);
  EXPECT_TRUE(value) << text;
  return value ? *std::move(value) : json::Value();
}

// Converts a JSON array of token ids.
inline std::vector<int32_t> Ids(const json::Value& array) {
  std::vector<int32_t> ids;
  for (const json::Value& id : array.as_array())
    ids.push_back(static_cast<int32_t>(id.as_integer()));
  return ids;
}

}  // namespace sluice::testing
