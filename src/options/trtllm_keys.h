// The keys of trtllm-serve's YAML file, nested ones with dots between their parts.
#pragma once

#include <span>
#include <string_view>

namespace sluice::options {

struct TrtllmKey {
  std::string_view path;    // "kv_cache_config.dtype"; a parent of others takes mappings and null
  std::string_view option;  // row of the table that it sets; "" for none
  std::string_view here;    // where it sets none: why it has no effect
  std::string_view refuses = "";  // where it cannot be had: why
};
std::span<const TrtllmKey> TrtllmKeys();

}  // namespace sluice::options
