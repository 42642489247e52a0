#include "events/event_encoder.h"

#include <algorithm>
#include <optional>
#include <span>

#include "base/check.h"
#include "cache/cache_salt.h"
#include "events/msgpack_writer.h"

namespace sluice {
namespace {

// The device's cache; other tiers would have other names.
constexpr std::string_view kMedium = "GPU";

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
  const std::span<const int32_t> tokens(batch.tokens.data() + event.first_token,
                                        static_cast<size_t>(shape_.block_size));
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

void CacheEventEncoder::WriteStored(const CacheEventBatch& batch, Run run, std::string& out) {
  MsgpackWriter writer(out);
  const CacheEvent& first = batch.events[run.begin];
  for (size_t i = run.begin; i < run.end; ++i) Name(batch, batch.events[i]);
  const AttentionSpan& span = shape_.groups[static_cast<size_t>(first.group)];
  const Adapter* const adapter = at(first.anchor).adapter.get();

  writer.Map(span.window > 0 ? 12 : 11);
  writer.Text("type");
  writer.Text("BlockStored");
  writer.Text("block_hashes");
  writer.Array(run.end - run.begin);
  for (size_t i = run.begin; i < run.end; ++i)
    writer.Unsigned(ShortHash(at(batch.events[i].anchor).digest));
  writer.Text("parent_block_hash");
  WriteHashOrNil(writer, first.parent == kNoBlock
                             ? std::nullopt
                             : std::optional(ShortHash(at(first.parent).digest)));
  writer.Text("token_ids");
  const size_t num_tokens = (run.end - run.begin) * static_cast<size_t>(shape_.block_size);
  writer.Array(num_tokens);
  for (size_t i = 0; i < num_tokens; ++i)
    writer.Unsigned(static_cast<uint32_t>(batch.tokens[first.first_token + i]));
  writer.Text("block_size");
  writer.Unsigned(static_cast<uint64_t>(shape_.block_size));
  writer.Text("lora_id");
  WriteHashOrNil(writer, adapter == nullptr ? std::nullopt : std::optional(adapter->serial));
  writer.Text("medium");
  writer.Text(kMedium);
  writer.Text("lora_name");
  if (adapter == nullptr)
    writer.Nil();
  else
    writer.Text(adapter->name);
  writer.Text("extra_keys");
  writer.Array(run.end - run.begin);
  for (size_t i = run.begin; i < run.end; ++i) {
    const std::string_view salt = ClientSaltOf(batch, batch.events[i]);
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
  writer.Unsigned(static_cast<uint64_t>(first.group));
  writer.Text("kv_cache_spec_kind");
  writer.Text(KindOf(span));
  if (span.window > 0) {
    writer.Text("kv_cache_spec_sliding_window");
    writer.Unsigned(static_cast<uint64_t>(span.window));
  }
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
  writer.Text(kMedium);
  writer.Text("group_idx");
  writer.Unsigned(static_cast<uint64_t>(batch.events[run.begin].group));
}

void CacheEventEncoder::WriteRun(const CacheEventBatch& batch, Run run, std::string& out) {
  switch (batch.events[run.begin].kind) {
    case CacheEvent::Kind::kStored: return WriteStored(batch, run, out);
    case CacheEvent::Kind::kRemoved: return WriteRemoved(batch, run, out);
    case CacheEvent::Kind::kCleared: break;
  }
  MsgpackWriter writer(out);
  writer.Map(1);
  writer.Text("type");
  writer.Text("AllBlocksCleared");
  std::ranges::fill(blocks_, Named());
}

std::string CacheEventEncoder::Encode(const CacheEventBatch& batch) {
  if (!batch.shape.empty()) Begin(batch.shape.front());
  const std::vector<Run> runs = RunsOf(batch);
  std::string out;
  MsgpackWriter writer(out);
  writer.Array(3);
  writer.Double(batch.unix_seconds);
  writer.Array(runs.size());
  for (const Run& run : runs) WriteRun(batch, run, out);
  writer.Unsigned(static_cast<uint64_t>(rank_));
  return out;
}

}  // namespace sluice
