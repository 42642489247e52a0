// The salt that separates the prefixes of requests that must not share blocks: made from the
// client's salt and the adapter.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

struct CacheSaltParts {
  std::string_view client = {};   // the request's cache_salt; "": none
  std::string_view adapter = {};  // name of the LoRA adapter; "": none
  uint64_t serial = 0;            // of the adapter's content
};

// Different parts give different salts; "" if all parts are empty.
std::string MakeCacheSalt(const CacheSaltParts& parts);
// Returns views into `salt`. REQUIRES: made by MakeCacheSalt.
CacheSaltParts ReadCacheSalt(std::string_view salt);

}  // namespace sluice
