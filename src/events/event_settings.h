// Settings that --kv-events-config contains.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

// Names and defaults are vLLM's, except that vLLM's default of hwm is 100,000.
struct CacheEventSettings {
  std::string endpoint = "tcp://*:5557";
  std::string replay_endpoint = {};  // "": no batches are kept for replay
  int64_t buffer_steps = 10000;      // maximum number of batches kept for replay
  int64_t hwm = 10000;               // maximum number of batches queued per subscriber
  int64_t max_queue_size = 100000;   // maximum number of batches waiting for the publishing thread
  std::string topic = {};
  std::string hash_seed = {};  // see block_hash.h
};

// Returns nullopt if nothing is to be published. kInvalidArgument names the key.
Result<std::optional<CacheEventSettings>> ReadCacheEventSettings(const json::Value& object);

// Returns the endpoint for data-parallel rank `rank`: the rank is added to the port of a tcp
// endpoint, except port 0, which lets the system choose; "_dpRANK" is appended to other endpoints.
std::string EndpointOfRank(const std::string& endpoint, int64_t rank);

}  // namespace sluice
