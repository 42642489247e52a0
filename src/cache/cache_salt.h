// What keeps the prefixes of requests apart that may not share blocks: the client's own salt and
// the adapter.
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

// Different parts make different salts; the parts of an empty salt are empty.
std::string MakeCacheSalt(const CacheSaltParts& parts);
// Views `salt`. REQUIRES: MakeCacheSalt has made it.
CacheSaltParts ReadCacheSalt(std::string_view salt);

}  // namespace sluice
