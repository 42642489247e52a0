// For tests: what cases written as JSON hold.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"

namespace sluice::testing {

inline std::vector<int32_t> Ids(const json::Value& array) {
  std::vector<int32_t> out;
  for (const json::Value& element : array.as_array())
    out.push_back(static_cast<int32_t>(element.as_integer()));
  return out;
}

}  // namespace sluice::testing
