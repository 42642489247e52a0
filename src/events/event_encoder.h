// Encodes batches of cache events as MessagePack messages in the format of vLLM 0.32.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "events/block_hash.h"
#include "events/event_batch.h"

namespace sluice {

// A message is an array [seconds since 1970, events, data-parallel rank]; an event is a map whose
// key "type" is BlockStored, BlockRemoved or AllBlocksCleared. Consecutive blocks of a sequence
// share one BlockStored. Blocks are named by the hashes in block_hash.h. The medium is GPU for the
// cache that computation uses, CPU for blocks in memory beyond it, STORAGE for blocks on disk.
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
  // A block that is in a tier, or recently was.
  struct TierBlock {
    uint64_t hash = 0;
    std::optional<uint64_t> parent;
    std::vector<int32_t> tokens;
    std::shared_ptr<const Adapter> adapter;
    std::string salt;  // the client's; "" except for first blocks
    int32_t group = 0;
    bool in_memory = false, on_disk = false;

    bool& in(TierMedium medium) { return medium == TierMedium::kDisk ? on_disk : in_memory; }
  };
  // The content of a BlockStored: blocks of one sequence. `salts`: by block, or empty.
  struct Stored {
    std::span<const uint64_t> hashes;
    std::optional<uint64_t> parent;
    std::span<const int32_t> tokens;
    const Adapter* adapter = nullptr;
    std::span<const std::string_view> salts;
    std::string_view medium;
    int32_t group = 0;
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
  // These return false if there is nothing to write.
  bool WriteRun(const CacheEventBatch& batch, Run run, std::string& out);
  bool WriteTierChange(const TierChange& change, std::string& out);
  void WriteStored(const CacheEventBatch& batch, Run run, std::string& out);
  void WriteMap(const Stored& stored, std::string& out) const;
  void WriteRemoved(const CacheEventBatch& batch, Run run, std::string& out);
  // Adds the block to tiers_, under the name that the tiers use for it.
  void NameInTiers(const CacheEventBatch& batch, const CacheEvent& event);
  // Limits the number of blocks in tiers_ that no tier contains: removes the blocks that left the
  // tiers earliest.
  void ForgetAbsent(const TierName& newest);

  const int64_t rank_;
  const BlockDigest root_;
  CacheShape shape_;
  std::vector<Named> blocks_;
  std::unordered_map<TierName, TierBlock, TierNameHash> tiers_;
  std::deque<TierName> absent_;  // blocks in no tier when they were added: just named, or just
                                 // removed; a tier may contain them by now
};

}  // namespace sluice
