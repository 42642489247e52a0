// What --kv-events-config asks for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

// The names and defaults are vLLM's, but for hwm, whose default there is 100,000.
struct CacheEventSettings {
  std::string endpoint = "tcp://*:5557";
  std::string replay_endpoint = {};  // "": batches are not kept
  int64_t buffer_steps = 10000;      // batches that are kept for replay
  int64_t hwm = 10000;               // batches that wait for one subscriber; further ones it misses
  int64_t max_queue_size = 100000;   // batches that wait for the publishing thread
  std::string topic = {};
  std::string hash_seed = {};  // of block_hash.h
};

// None: nothing is published. kInvalidArgument names the key.
Result<std::optional<CacheEventSettings>> ReadCacheEventSettings(const json::Value& object);

// The endpoint of the engine with data-parallel rank `rank`: the port of a tcp endpoint is higher
// by the rank, except port 0, which the system chooses; other endpoints get "_dpRANK" at the end.
std::string EndpointOfRank(const std::string& endpoint, int64_t rank);

}  // namespace sluice
