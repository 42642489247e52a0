#include "events/event_encoder.h"

#include <algorithm>
#include <optional>
#include <span>

#include "base/check.h"
#include "cache/cache_salt.h"
#include "events/msgpack_writer.h"

namespace sluice {
namespace {

// Media as vLLM calls them.
constexpr std::string_view kComputing = "GPU";
constexpr std::string_view kMemory = "CPU";
constexpr std::string_view kDisk = "STORAGE";

// Maximum number of blocks in tiers_ that no tier contains. They may be moving from one tier to the
// next.
constexpr size_t kMostAbsent = size_t{1} << 16;

std::string_view KindOf(const AttentionSpan& span) {
  if (span.sees_all()) return "full_attention";
  return span.chunk > 0 ? "chunked_local_attention" : "sliding_window";
}

void WriteHashOrNil(MsgpackWriter& writer, std::optional<uint64_t> hash) {
  if (hash)
    writer.Unsigned(*hash);
  else
    writer.Nil();
}

std::span<const int32_t> TokensOf(const CacheEventBatch& batch, const CacheEvent& first,
                                  size_t num_blocks, int block_size) {
  return {batch.tokens.data() + first.first_token, num_blocks * static_cast<size_t>(block_size)};
}

std::string_view ClientSaltOf(const CacheEventBatch& batch, const CacheEvent& event) {
  if (event.salt < 0 || event.parent != kNoBlock) return {};
  return ReadCacheSalt(batch.salts[static_cast<size_t>(event.salt)]).client;
}

}  // namespace

void CacheEventEncoder::Begin(const CacheShape& shape) {
  shape_ = shape;
  blocks_.assign(static_cast<size_t>(shape.num_blocks), {});
}

void CacheEventEncoder::Name(const CacheEventBatch& batch, const CacheEvent& event) {
  Named& named = at(event.anchor);
  if (event.group > 0) {
    CHECK(named.is_known, "block {} has a companion, but is not stored", event.anchor);
    return;
  }
  BlockKeys keys{.adapter = {}, .cache_salt = ClientSaltOf(batch, event)};
  named.adapter = nullptr;
  if (event.parent != kNoBlock) {
    named.adapter = at(event.parent).adapter;
  } else if (event.salt >= 0) {
    const CacheSaltParts parts = ReadCacheSalt(batch.salts[static_cast<size_t>(event.salt)]);
    if (!parts.adapter.empty()) {
      named.adapter =
          std::make_shared<const Adapter>(Adapter{std::string(parts.adapter), parts.serial});
    }
  }
  if (named.adapter != nullptr) {
    keys.adapter = named.adapter->name;
    keys.serial = named.adapter->serial;
  }
  const std::span<const int32_t> tokens = TokensOf(batch, event, 1, shape_.block_size);
  named.digest =
      DigestOfBlock(event.parent == kNoBlock ? root_ : at(event.parent).digest, tokens, keys);
  named.is_known = true;
}

std::vector<CacheEventEncoder::Run> CacheEventEncoder::RunsOf(const CacheEventBatch& batch) const {
  const auto continues = [&](const CacheEvent& last, const CacheEvent& next) {
    if (next.kind != last.kind || next.group != last.group) return false;
    if (next.kind == CacheEvent::Kind::kRemoved) return true;
    return next.kind == CacheEvent::Kind::kStored && next.parent == last.anchor &&
           next.first_token == last.first_token + static_cast<size_t>(shape_.block_size);
  };
  std::vector<Run> runs;
  for (size_t i = 0; i < batch.events.size(); ++i) {
    if (i > 0 && continues(batch.events[i - 1], batch.events[i]))
      runs.back().end = i + 1;
    else
      runs.push_back({i, i + 1});
  }
  return runs;
}

void CacheEventEncoder::WriteMap(const Stored& stored, std::string& out) const {
  MsgpackWriter writer(out);
  const AttentionSpan& span = shape_.groups[static_cast<size_t>(stored.group)];
  writer.Map(span.window > 0 ? 12 : 11);
  writer.Text("type");
  writer.Text("BlockStored");
  writer.Text("block_hashes");
  writer.Array(stored.hashes.size());
  for (const uint64_t hash : stored.hashes) writer.Unsigned(hash);
  writer.Text("parent_block_hash");
  WriteHashOrNil(writer, stored.parent);
  writer.Text("token_ids");
  writer.Array(stored.tokens.size());
  for (const int32_t token : stored.tokens) writer.Unsigned(static_cast<uint32_t>(token));
  writer.Text("block_size");
  writer.Unsigned(static_cast<uint64_t>(shape_.block_size));
  writer.Text("lora_id");
  const Adapter* const adapter = stored.adapter;
  WriteHashOrNil(writer, adapter == nullptr ? std::nullopt : std::optional(adapter->serial));
  writer.Text("medium");
  writer.Text(stored.medium);
  writer.Text("lora_name");
  if (adapter == nullptr)
    writer.Nil();
  else
    writer.Text(adapter->name);
  writer.Text("extra_keys");
  writer.Array(stored.hashes.size());
  for (const std::string_view salt : stored.salts) {
    const size_t count = (adapter == nullptr ? 0 : 1) + (salt.empty() ? 0 : 1);
    if (count == 0) {
      writer.Nil();
      continue;
    }
    writer.Array(count);
    if (adapter != nullptr) writer.Text(adapter->name);
    if (!salt.empty()) writer.Text(salt);
  }
  writer.Text("group_idx");
  writer.Unsigned(static_cast<uint64_t>(stored.group));
  writer.Text("kv_cache_spec_kind");
  writer.Text(KindOf(span));
  if (span.window > 0) {
    writer.Text("kv_cache_spec_sliding_window");
    writer.Unsigned(static_cast<uint64_t>(span.window));
  }
}

void CacheEventEncoder::WriteStored(const CacheEventBatch& batch, Run run, std::string& out) {
  const CacheEvent& first = batch.events[run.begin];
  std::vector<uint64_t> hashes;
  std::vector<std::string_view> salts;
  for (size_t i = run.begin; i < run.end; ++i) {
    const CacheEvent& event = batch.events[i];
    Name(batch, event);
    hashes.push_back(ShortHash(at(event.anchor).digest));
    salts.push_back(ClientSaltOf(batch, event));
  }
  Stored stored{.hashes = hashes,
                .parent = {},
                .tokens = TokensOf(batch, first, hashes.size(), shape_.block_size),
                .adapter = at(first.anchor).adapter.get(),
                .salts = salts,
                .medium = kComputing,
                .group = first.group};
  if (first.parent != kNoBlock) stored.parent = ShortHash(at(first.parent).digest);
  WriteMap(stored, out);
}

void CacheEventEncoder::NameInTiers(const CacheEventBatch& batch, const CacheEvent& event) {
  const Named& named = at(event.anchor);
  if (!named.is_known) return;
  const TierName& name = batch.tier_changes[event.tier_change].name;
  TierBlock& block = tiers_[name];
  block.hash = ShortHash(named.digest);
  block.parent.reset();
  if (event.parent != kNoBlock) block.parent = ShortHash(at(event.parent).digest);
  const std::span<const int32_t> tokens = TokensOf(batch, event, 1, shape_.block_size);
  block.tokens.assign(tokens.begin(), tokens.end());
  block.adapter = named.adapter;
  block.salt = ClientSaltOf(batch, event);
  block.group = event.group;
  ForgetAbsent(name);
}

void CacheEventEncoder::ForgetAbsent(const TierName& newest) {
  absent_.push_back(newest);
  while (absent_.size() > kMostAbsent) {
    const auto oldest = tiers_.find(absent_.front());
    absent_.pop_front();
    if (oldest != tiers_.end() && !oldest->second.in_memory && !oldest->second.on_disk)
      tiers_.erase(oldest);
  }
}

bool CacheEventEncoder::WriteTierChange(const TierChange& change, std::string& out) {
  const auto found = tiers_.find(change.name);
  if (found == tiers_.end()) return false;
  TierBlock& block = found->second;
  bool& is_there = block.in(change.medium);
  if (is_there == change.is_stored) return false;
  is_there = change.is_stored;
  const std::string_view medium = change.medium == TierMedium::kDisk ? kDisk : kMemory;
  if (change.is_stored) {
    const std::string_view salt = block.salt;
    WriteMap({.hashes = {&block.hash, 1},
              .parent = block.parent,
              .tokens = block.tokens,
              .adapter = block.adapter.get(),
              .salts = {&salt, 1},
              .medium = medium,
              .group = block.group},
             out);
    return true;
  }
  MsgpackWriter writer(out);
  writer.Map(4);
  writer.Text("type");
  writer.Text("BlockRemoved");
  writer.Text("block_hashes");
  writer.Array(1);
  writer.Unsigned(block.hash);
  writer.Text("medium");
  writer.Text(medium);
  writer.Text("group_idx");
  writer.Unsigned(static_cast<uint64_t>(block.group));
  ForgetAbsent(change.name);
  return true;
}

void CacheEventEncoder::WriteRemoved(const CacheEventBatch& batch, Run run, std::string& out) {
  MsgpackWriter writer(out);
  writer.Map(4);
  writer.Text("type");
  writer.Text("BlockRemoved");
  writer.Text("block_hashes");
  writer.Array(run.end - run.begin);
  for (size_t i = run.begin; i < run.end; ++i) {
    Named& named = at(batch.events[i].anchor);
    CHECK(named.is_known, "block {} is removed, but was not stored", batch.events[i].anchor);
    writer.Unsigned(ShortHash(named.digest));
    if (batch.events[i].group == 0) named = {};
  }
  writer.Text("medium");
  writer.Text(kComputing);
  writer.Text("group_idx");
  writer.Unsigned(static_cast<uint64_t>(batch.events[run.begin].group));
}

bool CacheEventEncoder::WriteRun(const CacheEventBatch& batch, Run run, std::string& out) {
  const CacheEvent& first = batch.events[run.begin];
  switch (first.kind) {
    case CacheEvent::Kind::kStored: WriteStored(batch, run, out); return true;
    case CacheEvent::Kind::kRemoved: WriteRemoved(batch, run, out); return true;
    case CacheEvent::Kind::kTierName: NameInTiers(batch, first); return false;
    case CacheEvent::Kind::kTier:
      return WriteTierChange(batch.tier_changes[first.tier_change], out);
    case CacheEvent::Kind::kCleared: break;
  }
  MsgpackWriter writer(out);
  writer.Map(1);
  writer.Text("type");
  writer.Text("AllBlocksCleared");
  std::ranges::fill(blocks_, Named());
  tiers_.clear();
  absent_.clear();
  return true;
}

std::string CacheEventEncoder::Encode(const CacheEventBatch& batch) {
  if (!batch.shape.empty()) Begin(batch.shape.front());
  size_t count = 0;
  std::string events;
  for (const Run& run : RunsOf(batch)) count += WriteRun(batch, run, events);
  std::string out;
  MsgpackWriter writer(out);
  writer.Array(3);
  writer.Double(batch.unix_seconds);
  writer.Array(count);
  out += events;
  writer.Unsigned(static_cast<uint64_t>(rank_));
  return out;
}

}  // namespace sluice
