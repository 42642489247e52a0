// Builds the salt from the client's salt and the adapter. Only requests with equal salts share
// blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

struct CacheSaltParts {
  std::string_view client = {};   // the request's cache_salt; "": none
  std::string_view adapter = {};  // name of the LoRA adapter; "": none
  uint64_t serial = 0;            // serial number of the adapter's content
};

// Returns different salts for different parts, and "" if all parts are empty.
std::string MakeCacheSalt(const CacheSaltParts& parts);
// Splits a salt. Returns views into `salt`. REQUIRES: `salt` was made by MakeCacheSalt.
CacheSaltParts ReadCacheSalt(std::string_view salt);

}  // namespace sluice
