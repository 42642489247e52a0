// For tests: parsing JSON.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/json.h"

namespace sluice::testing {

// The value of `text`; the test fails if it is not JSON.
inline json::Value Json(std::string_view text) {
  auto value = json::Parse(text);
  EXPECT_TRUE(value) << text;
  return value ? *std::move(value) : json::Value();
}

// The token ids of a JSON array.
inline std::vector<int32_t> Ids(const json::Value& array) {
  std::vector<int32_t> ids;
  for (const json::Value& id : array.as_array())
    ids.push_back(static_cast<int32_t>(id.as_integer()));
  return ids;
}

}  // namespace sluice::testing
