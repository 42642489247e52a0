#include "models/shard.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/matrix.h"

namespace sluice {
namespace {

// Part `index` of [0, count) in `parts` nearly equal ones.
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
  const int64_t num_kv_heads = attention.num_kv_heads;
  const int64_t group = attention.num_heads / num_kv_heads;  // query heads of a KV head
  if (size <= num_kv_heads) {
    const RowRange kv = PartOf(num_kv_heads, rank, size);
    return {{kv.begin * group, kv.end * group}, kv};
  }
  int64_t head = 0;
  RowRange ranks = PartOf(size, 0, num_kv_heads);  // that hold the head
  while (rank >= ranks.end) ranks = PartOf(size, ++head, num_kv_heads);
  const RowRange q = PartOf(group, rank - ranks.begin, ranks.size());
  return {{head * group + q.begin, head * group + q.end}, {head, head + 1}};
}

RowRange CutLayers(int64_t num_layers, int stage, int num_stages) {
  return PartOf(num_layers, stage, num_stages);
}

Status CheckRanks(const DecoderSpec& spec, int tensor_size, int num_stages) {
  CHECK(tensor_size >= 1 && num_stages >= 1);
  const auto num_layers = static_cast<int64_t>(spec.layers.size());
  if (num_stages > num_layers)
    return TooMany("pipeline_parallel_size", num_stages, num_layers, "layers");
  if (tensor_size == 1) return {};
  constexpr const char* kParam = "tensor_parallel_size";
  const AttentionSpec& attention = spec.layers.front().attention;
  if (tensor_size > attention.num_heads)
    return TooMany(kParam, tensor_size, attention.num_heads, "query heads");
  const auto check_rows = [&](int64_t rows, const char* what) -> Status {
    if (rows > 0 && rows < tensor_size) return TooMany(kParam, tensor_size, rows, what);
    return {};
  };
  RETURN_IF_ERROR(check_rows(spec.hidden_size, "hidden rows"));
  RETURN_IF_ERROR(check_rows(spec.vocab_size, "words"));
  for (const LayerSpec& layer : spec.layers) {
    RETURN_IF_ERROR(check_rows(layer.mlp.intermediate_size, "rows in an MLP"));
    if (layer.moe) RETURN_IF_ERROR(check_rows(layer.moe->intermediate_size, "rows in an expert"));
    if (layer.moe && layer.moe->has_bias) {
      return Fail(
          ErrorCode::kUnsupported,
          fmt::format("{} {}: experts with biases, whose rows of gate and up alternate, are "
                      "not divided; leave the option out",
                      kParam, tensor_size),
          kParam);
    }
    if (layer.attention.qk_norm == QkNorm::kWholeWidth) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("{} {}: this model norms all heads of q together, which is not "
                              "divided; leave the option out",
                              kParam, tensor_size),
                  kParam);
    }
  }
  return {};
}

DecoderSpec ShareOf(const DecoderSpec& spec, const RankPlace& place) {
  DecoderSpec share = spec;
  const RowRange layers =
      CutLayers(static_cast<int64_t>(spec.layers.size()), place.stage, place.num_stages);
  share.layers.assign(spec.layers.begin() + layers.begin, spec.layers.begin() + layers.end);
  const auto rows_of = [&](int64_t count) {
    return CutRows(count, place.tensor_rank, place.tensor_size).size();
  };
  for (LayerSpec& layer : share.layers) {
    const HeadCut heads = CutHeads(layer.attention, place.tensor_rank, place.tensor_size);
    layer.attention.num_heads = static_cast<int>(heads.q.size());
    layer.attention.num_kv_heads = static_cast<int>(heads.kv.size());
    layer.mlp.intermediate_size = rows_of(layer.mlp.intermediate_size);
    if (layer.moe) layer.moe->intermediate_size = rows_of(layer.moe->intermediate_size);
  }
  return share;
}

KvGroups StageGroups(const KvGroups& groups, const RowRange& layers) {
  if (layers.size() == groups.num_layers()) return groups;
  KvGroups stage;
  stage.spans = groups.spans;
  std::map<int, int> layers_of;  // by group
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    const int group = groups.places[static_cast<size_t>(layer)].group;
    stage.places.push_back({group, layers_of[group]++});
    stage.layers_per_group = std::max<int64_t>(stage.layers_per_group, layers_of[group]);
  }
  return stage;
}

}  // namespace sluice
