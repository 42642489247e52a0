#include "models/shard.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/matrix.h"

namespace sluice {
namespace {

// Returns part `index` of [0, count) when it is divided into `parts` nearly equal parts.
RowRange PartOf(int64_t count, int64_t index, int64_t parts) {
  return {count * index / parts, count * (index + 1) / parts};
}

tl::unexpected<Error> TooMany(const char* param, int asked, int64_t most, const char* what) {
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} {}: the model has {} {} to divide; lower it to at most {}", param,
                          asked, most, what, most),
              param);
}

}  // namespace

RowRange CutRows(int64_t count, int rank, int size) {
  constexpr int64_t kPanelRows = kernels::PackedMatrix::kPanelRows;
  const int64_t unit = count >= kPanelRows * size ? kPanelRows : 1;
  const RowRange units = PartOf((count + unit - 1) / unit, rank, size);
  return {units.begin * unit, std::min(count, units.end * unit)};
}

HeadCut CutHeads(const AttentionSpec& attention, int rank, int size) {
  if (!attention.exists()) return {};
  const int64_t num_kv_heads = attention.num_kv_heads;
  const int64_t group = attention.num_heads / num_kv_heads;  // number of query heads per KV head
  if (size <= num_kv_heads) {
    const RowRange kv = PartOf(num_kv_heads, rank, size);
    return {{kv.begin * group, kv.end * group}, kv};
  }
  int64_t head = 0;
  RowRange ranks = PartOf(size, 0, num_kv_heads);  // the ranks that compute this head
  while (rank >= ranks.end) ranks = PartOf(size, ++head, num_kv_heads);
  const RowRange q = PartOf(group, rank - ranks.begin, ranks.size());
  return {{head * group + q.begin, head * group + q.end}, {head, head + 1}};
}

RowRange FirstHeldKeys(const AttentionSpec& attention, int rank, int size) {
  if (!attention.exists()) return {};
  const HeadCut cut = CutHeads(attention, rank, size);
  const int64_t group = attention.num_heads / attention.num_kv_heads;
  const bool is_first = cut.q.begin == cut.kv.begin * group;
  return is_first ? cut.kv : RowRange{cut.kv.begin, cut.kv.begin};
}

MixerCut CutMixer(const MixerSpec& mixer, int rank, int size) {
  if (mixer.kind == MixerSpec::Kind::kShortConvolution)
    return {CutRows(mixer.num_heads, rank, size), {}};
  if (mixer.num_key_heads % size != 0) return {{0, mixer.num_heads}, {0, mixer.num_key_heads}};
  const RowRange keys = PartOf(mixer.num_key_heads, rank, size);
  const int64_t group = mixer.num_heads / mixer.num_key_heads;
  return {{keys.begin * group, keys.end * group}, keys};
}

RowRange CutLayers(int64_t num_layers, int stage, int num_stages) {
  return PartOf(num_layers, stage, num_stages);
}

RowRange LayersOf(const DecoderSpec& spec, const RankPlace& place) {
  return CutLayers(std::ssize(spec.layers), place.stage, place.num_stages);
}

Status CheckRanks(const DecoderSpec& spec, int tensor_size, int num_stages) {
  CHECK(tensor_size >= 1 && num_stages >= 1);
  if (tensor_size * num_stages == 1) return {};
  if (spec.layers.empty()) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "an encoder has only one rank: omit --tensor-parallel-size and --pipeline-parallel-size",
        "tensor_parallel_size");
  }
  if (spec.streams) {
    const char* param = tensor_size > 1 ? "tensor_parallel_size" : "pipeline_parallel_size";
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} {}: a model with several residual streams is computed by one rank; "
                            "leave the option out",
                            param, std::max(tensor_size, num_stages)),
                param);
  }
  if (std::any_of(spec.layers.begin(), spec.layers.end(),
                  [](const LayerSpec& layer) { return layer.attention.block_indexer; })) {
    const char* param = tensor_size > 1 ? "tensor_parallel_size" : "pipeline_parallel_size";
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} {}: a model that attends to chosen blocks of positions is computed "
                            "by one rank; leave the option out",
                            param, std::max(tensor_size, num_stages)),
                param);
  }
  const auto num_layers = static_cast<int64_t>(spec.layers.size());
  if (num_stages > num_layers)
    return TooMany("pipeline_parallel_size", num_stages, num_layers, "layers");
  for (int stage = 1; stage < num_stages; ++stage) {
    const int64_t first = CutLayers(num_layers, stage, num_stages).begin;
    const auto& latent = spec.layers[static_cast<size_t>(first)].attention.latent;
    if (!latent || !latent->indexer || !latent->indexer->is_shared) continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("--pipeline-parallel-size {}: layer {} attends to positions chosen by "
                            "the previous layer, which stages do not pass on; choose another size",
                            num_stages, first),
                "pipeline_parallel_size");
  }
  if (tensor_size == 1) return {};
  constexpr const char* kParam = "tensor_parallel_size";
  const auto check_rows = [&](int64_t rows, const char* what) -> Status {
    if (rows > 0 && rows < tensor_size) return TooMany(kParam, tensor_size, rows, what);
    return {};
  };
  RETURN_IF_ERROR(check_rows(spec.hidden_size, "hidden rows"));
  RETURN_IF_ERROR(check_rows(spec.vocab_size, "words"));
  if (spec.layer_embeddings.width > 0) {
    RETURN_IF_ERROR(check_rows(spec.layer_embeddings.width, "rows in the embedding of a layer"));
    RETURN_IF_ERROR(
        check_rows(spec.layer_embeddings.vocab_size, "words with embeddings in layers"));
  }
  for (const LayerSpec& layer : spec.layers) {
    RETURN_IF_ERROR(check_rows(layer.attention.num_heads, "query heads"));
    if (layer.mixer && layer.mixer->kind == MixerSpec::Kind::kShortConvolution)
      RETURN_IF_ERROR(check_rows(layer.mixer->num_heads, "channels of a convolution"));
    RETURN_IF_ERROR(check_rows(layer.mlp.intermediate_size, "rows in an MLP"));
    if (layer.moe) RETURN_IF_ERROR(check_rows(layer.moe->intermediate_size, "rows in an expert"));
  }
  return {};
}

DecoderSpec ShareOf(const DecoderSpec& spec, const RankPlace& place) {
  DecoderSpec share = spec;
  const RowRange layers = LayersOf(spec, place);
  share.layers.assign(spec.layers.begin() + layers.begin, spec.layers.begin() + layers.end);
  const auto rows_of = [&](int64_t count) {
    return CutRows(count, place.tensor_rank, place.tensor_size).size();
  };
  for (LayerSpec& layer : share.layers) {
    const HeadCut heads = CutHeads(layer.attention, place.tensor_rank, place.tensor_size);
    layer.attention.num_heads = static_cast<int>(heads.q.size());
    layer.attention.num_kv_heads = static_cast<int>(heads.kv.size());
    if (layer.mixer) {
      const MixerCut cut = CutMixer(*layer.mixer, place.tensor_rank, place.tensor_size);
      layer.mixer->num_heads = static_cast<int>(cut.heads.size());
      layer.mixer->num_key_heads = static_cast<int>(cut.key_heads.size());
    }
    layer.mlp.intermediate_size = rows_of(layer.mlp.intermediate_size);
    if (layer.moe) layer.moe->intermediate_size = rows_of(layer.moe->intermediate_size);
  }
  share.layer_embeddings.width = rows_of(spec.layer_embeddings.width);
  return share;
}

KvGroups ShareGroups(const KvGroups& groups, const DecoderSpec& spec, const RankPlace& place) {
  const RowRange layers = LayersOf(spec, place);
  const auto num_layers = static_cast<size_t>(layers.size());
  KvGroups share = groups;
  if (!groups.heads.empty()) {
    share.heads.clear();
    for (const LayerSpec& layer : ShareOf(spec, place).layers)
      share.heads.push_back({layer.attention.num_kv_heads, layer.attention.head_dim});
  }
  if (num_layers == groups.places.size()) return share;
  share.places.clear();
  share.layers_per_group = 0;
  std::map<int, std::map<int, int>> slots;  // keyed by the whole model's group, then by its slot
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    const KvGroups::Place& whole = groups.places[static_cast<size_t>(layer)];
    if (whole.slot < 0) {
      share.places.push_back(whole);
      continue;
    }
    std::map<int, int>& of_group = slots[whole.group];
    const int next = static_cast<int>(of_group.size());
    share.places.push_back({whole.group, of_group.emplace(whole.slot, next).first->second});
    share.layers_per_group = std::max(share.layers_per_group, std::ssize(of_group));
  }
  return share;
}

int64_t NumHeldKvLayers(const DecoderSpec& spec, const RankPlace& place) {
  const RowRange layers = LayersOf(spec, place);
  std::set<int64_t> held;
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    const AttentionSpec& attention = spec.layers[static_cast<size_t>(layer)].attention;
    if (!attention.exists()) continue;
    held.insert(attention.has_own_kv() ? layer : attention.kv_layer);
  }
  return std::ssize(held);
}

}  // namespace sluice
