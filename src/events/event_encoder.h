// Encodes batches of cache events as MessagePack messages in the format of vLLM 0.32.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "events/block_hash.h"
#include "events/event_batch.h"

namespace sluice {

// A message is an array [seconds since 1970, events, data-parallel rank]; an event is a map whose
// key "type" is BlockStored, BlockRemoved or AllBlocksCleared. Consecutive blocks of a sequence
// share one BlockStored. Blocks are named by the hashes in block_hash.h.
//
// Keeps the names of stored blocks, so all batches must pass through it, in order. Thread safety:
// one thread at a time.
class CacheEventEncoder {
 public:
  CacheEventEncoder(int64_t rank, std::string_view hash_seed)
      : rank_(rank), root_(RootDigest(hash_seed)) {}

  // REQUIRES: the first batch has a shape.
  std::string Encode(const CacheEventBatch& batch);

 private:
  struct Adapter {
    std::string name;
    uint64_t serial = 0;
  };
  // The name of an anchor block.
  struct Named {
    BlockDigest digest{};
    std::shared_ptr<const Adapter> adapter;  // inherited from the parent; null: none
    bool is_known = false;
  };
  // Consecutive events that are encoded as one map.
  struct Run {
    size_t begin = 0, end = 0;
  };

  void Begin(const CacheShape& shape);
  Named& at(BlockId block) { return blocks_[static_cast<size_t>(block)]; }
  // Assigns names to the anchors of stored blocks.
  void Name(const CacheEventBatch& batch, const CacheEvent& event);
  std::vector<Run> RunsOf(const CacheEventBatch& batch) const;
  void WriteRun(const CacheEventBatch& batch, Run run, std::string& out);
  void WriteStored(const CacheEventBatch& batch, Run run, std::string& out);
  void WriteRemoved(const CacheEventBatch& batch, Run run, std::string& out);

  const int64_t rank_;
  const BlockDigest root_;
  CacheShape shape_;
  std::vector<Named> blocks_;
};

}  // namespace sluice
