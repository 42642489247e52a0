// Identifies the client of a request, for fair scheduling and rate limits.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "server/api/guard/api_keys.h"
#include "server/http/http_types.h"

namespace sluice {

// Maps a request to a number. If the server has keys and the request presents one of them, the
// number is a hash of the key; otherwise a hash of the client's address: a whole IPv4 address, or
// the network (64 bits) of an IPv6 address. An unknown key is ignored, because clients could change
// it with every request. The hash is keyed: it differs between processes and reveals nothing about
// the key. Thread safety: all methods may be called from any thread.
class ClientIdentity {
 public:
  // `keys` must outlive this object.
  explicit ClientIdentity(const ApiKeys& keys);

  uint64_t Of(const HttpRequest& head) const;

 private:
  uint64_t Hash(char kind, std::string_view bytes) const;

  const ApiKeys& keys_;
  std::vector<unsigned char> secret_;
};

}  // namespace sluice
