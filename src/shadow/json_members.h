// Reads members of untrusted JSON objects.
#pragma once

#include <string_view>

#include "base/json.h"

namespace sluice::shadow {

// Limits for parsing requests and answers.
inline constexpr json::ParseLimits kJsonLimits{.max_bytes = size_t{64} << 20, .max_depth = 64};

// Returns the member of an object; null if it is missing or is JSON's null.
inline const json::Value* Member(const json::Value& value, std::string_view key) {
  const json::Value* found = value.Find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

}  // namespace sluice::shadow
