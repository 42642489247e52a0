#include "models/program/cost.h"

#include <algorithm>

namespace sluice::program {
namespace {

// Computes the costs of operators. Operators without a function in this class have no cost.
struct Coster {
  const Program& program;
  const MatrixBytes& bytes_of;
  int64_t kv_bytes;

  Cost Linear(LinearId id, int64_t n, int64_t k) const {
    return {.weight_bytes = bytes_of(program.linears[static_cast<size_t>(id)]->matrix),
            .row_operations = 2 * n * k};
  }

  template <typename Other>
  Cost operator()(const Other&) const {
    return {};
  }
  Cost operator()(const Project& op) const {
    if (op.linear != kNone) return Linear(op.linear, op.n, op.k);
    return {.weight_bytes = bytes_of(*program.tables[static_cast<size_t>(op.table)]),
            .row_operations = 2 * op.n * op.k};
  }
  Cost operator()(const Route& op) const {
    return Linear(op.router, program.moes[static_cast<size_t>(op.moe)].num_experts, op.width);
  }
  Cost operator()(const GateShared& op) const { return Linear(op.gate, 1, op.width); }
  Cost operator()(const ProjectExperts& op) const {
    const std::vector<kernels::PackedMatrix>& matrices =
        program.experts[static_cast<size_t>(op.experts)]->matrices;
    const int64_t top_k = program.moes[static_cast<size_t>(op.moe)].top_k;
    return {.weight_bytes = top_k * bytes_of(matrices.front()),
            .row_operations = top_k * 2 * op.n * op.k};
  }
  Cost operator()(const Attend& op) const {
    const AttentionSpec& spec = program.attentions[static_cast<size_t>(op.attention)];
    if (spec.latent) {
      return {.position_bytes = spec.kv_width() * kv_bytes,
              .position_operations = 2 * spec.num_heads * (spec.head_dim + spec.value_dim())};
    }
    return {.position_bytes = 2 * spec.kv_width() * kv_bytes,
            .position_operations = 4 * spec.q_width()};
  }
  // Returns the cost of all heads, each with its own matrix.
  Cost Heads(ExpertsId id, int64_t n, int64_t k) const {
    const std::vector<kernels::PackedMatrix>& matrices =
        program.experts[static_cast<size_t>(id)]->matrices;
    Cost cost;
    for (const kernels::PackedMatrix& matrix : matrices)
      cost += {.weight_bytes = bytes_of(matrix), .row_operations = 2 * n * k};
    return cost;
  }
  Cost operator()(const ChoosePositions& op) const {
    const IndexerSpec& spec =
        *program.attentions[static_cast<size_t>(op.attention)].latent->indexer;
    return {.position_bytes = spec.head_dim * kv_bytes,
            .position_operations = 2 * int64_t{spec.num_heads} * spec.head_dim};
  }
  Cost operator()(const ChooseBlocks& op) const {
    const BlockIndexerSpec& spec =
        *program.attentions[static_cast<size_t>(op.attention)].block_indexer;
    return {.position_bytes = spec.head_dim * kv_bytes,
            .position_operations = 2 * int64_t{spec.num_heads} * spec.head_dim};
  }
  Cost operator()(const AbsorbQueries& op) const {
    const LatentSpec& spec = *program.attentions[static_cast<size_t>(op.attention)].latent;
    return Heads(op.key_up, spec.kv_rank, spec.nope_dim);
  }
  Cost operator()(const ExpandValues& op) const {
    const LatentSpec& spec = *program.attentions[static_cast<size_t>(op.attention)].latent;
    return Heads(op.value_up, spec.value_dim, spec.kv_rank);
  }
  Cost operator()(const ProjectGroups& op) const { return Heads(op.matrices, op.n, op.k); }
  Cost operator()(const CollapseStreams& op) const {
    const int64_t sums = op.mixes == kNone ? op.spec.count : op.spec.num_weights();
    const int64_t numbers = sums * op.spec.count * op.width;
    return {.weight_bytes = numbers * int64_t{sizeof(float)}, .row_operations = 2 * numbers};
  }
  Cost operator()(const Convolve& op) const {
    const MixerSpec& spec = program.mixers[static_cast<size_t>(op.mixer)];
    return {.row_operations = 2 * spec.conv_width * spec.conv_channels()};
  }
  // Counts the operations per element of the states: decay, addition and read; with the delta rule
  // also the correction.
  Cost operator()(const UpdateState& op) const {
    const MixerSpec& spec = program.mixers[static_cast<size_t>(op.mixer)];
    const bool corrects = spec.kind == MixerSpec::Kind::kDeltaRule;
    return {.row_operations = (corrects ? 7 : 5) * spec.matrix_numbers()};
  }
  Cost operator()(const Score& op) const {
    return {.weight_bytes = op.num_scores * op.width * int64_t{sizeof(float)},
            .row_operations = 2 * op.num_scores * op.width};
  }
};

}  // namespace

Cost& Cost::operator+=(const Cost& other) {
  weight_bytes += other.weight_bytes;
  row_operations += other.row_operations;
  position_bytes += other.position_bytes;
  position_operations += other.position_operations;
  return *this;
}

Cost CostOf(const Program& program, const Op& op, const MatrixBytes& bytes_of, int64_t kv_bytes) {
  return std::visit(Coster{program, bytes_of, kv_bytes}, op);
}

Cost CostOf(const Program& program, const MatrixBytes& bytes_of, int64_t kv_bytes) {
  Cost sum;
  for (const Op& op : program.ops) sum += CostOf(program, op, bytes_of, kv_bytes);
  return sum;
}

}  // namespace sluice::program
