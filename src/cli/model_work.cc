#include <algorithm>
#include <variant>

#include "cli/limits.h"
#include "models/program/build_decoder.h"
#include "models/program/cost.h"
#include "models/weights.h"

namespace sluice::cli {
namespace {

void AddAttention(const program::Program& program, const program::Attend& op, int64_t operations,
                  std::vector<ModelWork::Attention>& attention) {
  const AttentionSpan& span = program.attentions[static_cast<size_t>(op.attention)].span;
  const int64_t most_chosen = op.chosen == program::kNone ? 0 : op.most_chosen;
  const auto is_same = [&](const ModelWork::Attention& one) {
    return one.span == span && one.most_chosen == most_chosen;
  };
  auto found = std::ranges::find_if(attention, is_same);
  if (found == attention.end())
    found = attention.insert(found, {.span = span, .most_chosen = most_chosen});
  found->position_operations += operations;
}

}  // namespace

ModelWork WorkOf(const ModelConfig& config) {
  ModelWork work;
  if (config.spec.layers.empty()) return work;
  DecoderWeights weights;
  ListParameters(config.spec, weights, {});
  const program::Program program =
      program::BuildDecoder({.spec = config.spec, .options = {}, .weights = weights});
  const auto no_bytes = [](const kernels::PackedMatrix&) -> int64_t { return 0; };
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const program::Op& op = program.ops[i];
    const program::Cost cost = program::CostOf(program, op, no_bytes, /*kv_bytes=*/0);
    const bool is_head = static_cast<int32_t>(i) >= program.results_begin;
    (is_head ? work.head_operations : work.row_operations) += cost.row_operations;
    if (const auto* attend = std::get_if<program::Attend>(&op))
      AddAttention(program, *attend, cost.position_operations, work.attention);
  }
  return work;
}

double PrefillFlops(const ModelWork& work, int64_t tokens) {
  double flops = static_cast<double>(tokens) * static_cast<double>(work.row_operations) +
                 static_cast<double>(work.head_operations);
  for (const ModelWork::Attention& attention : work.attention) {
    int64_t pairs = 0;  // of a token and a position that it attends to
    for (int64_t token = 0; token < tokens; ++token) {
      const int64_t seen = token + 1 - attention.span.FirstSeen(token);
      pairs += attention.most_chosen > 0 ? std::min(seen, attention.most_chosen) : seen;
    }
    flops += static_cast<double>(pairs) * static_cast<double>(attention.position_operations);
  }
  return flops;
}

}  // namespace sluice::cli
