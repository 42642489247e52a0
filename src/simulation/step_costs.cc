#include "simulation/step_costs.h"

#include <algorithm>
#include <map>
#include <variant>

#include <fmt/format.h>

#include "kernels/linear.h"
#include "models/encoder/encoder_spec.h"
#include "models/program/build_decoder.h"
#include "models/program/cost.h"
#include "models/shard.h"
#include "models/weight_loader.h"
#include "models/weights.h"
#include "tensor/element_type.h"

namespace sluice {
namespace {

struct StoredMatrix {
  int64_t bytes = 0;
  ProductRate rate = ProductRate::kBf16;
};
using StoredMatrices = std::map<const kernels::PackedMatrix*, StoredMatrix>;

// Returns the rate for a type of weights. INT8 products run at the FP8 rate; four-bit integers are
// expanded to BF16.
ProductRate RateOf(ElementType type) {
  switch (type) {
    case ElementType::kF8E4M3:
    case ElementType::kI8: return ProductRate::kFp8;
    case ElementType::kF4E2M1: return ProductRate::kFp4;
    default: return ProductRate::kBf16;
  }
}

// Adds the costs of a program's operators.
class Adder {
 public:
  Adder(const program::Program& program, const StoredMatrices& stored, int64_t kv_bytes,
        StageCosts& costs)
      : program_(program), stored_(stored), kv_bytes_(kv_bytes), costs_(costs) {}

  void AddAll() {
    for (size_t i = 0; i < program_.ops.size(); ++i) {
      is_result_ = static_cast<int32_t>(i) >= program_.results_begin;
      const program::Op& op = program_.ops[i];
      const program::Cost cost = program::CostOf(
          program_, op, [this](const kernels::PackedMatrix& matrix) { return BytesOf(matrix); },
          kv_bytes_);
      std::visit([&](const auto& one) { Add(one, cost); }, op);
    }
    costs_.num_layers = static_cast<int64_t>(program_.layers.size());
  }

 private:
  int64_t BytesOf(const kernels::PackedMatrix& matrix) const { return stored_.at(&matrix).bytes; }

  void AddProducts(ProductRate rate, const program::Cost& cost) {
    StageCosts::Products& products =
        is_result_ ? costs_.head : costs_.dense[static_cast<size_t>(rate)];
    products.bytes += static_cast<double>(cost.weight_bytes);
    products.row_operations += static_cast<double>(cost.row_operations);
  }

  template <typename Other>
  void Add(const Other&, const program::Cost& cost) {
    AddProducts(ProductRate::kBf16, cost);
  }
  void Add(const program::Project& op, const program::Cost& cost) {
    const ProductRate rate =
        op.linear == program::kNone
            ? ProductRate::kBf16
            : stored_.at(&program_.linears[static_cast<size_t>(op.linear)]->matrix).rate;
    AddProducts(rate, cost);
  }
  void Add(const program::ProjectExperts& op, const program::Cost& cost) {
    const kernels::PackedMatrix& first =
        program_.experts[static_cast<size_t>(op.experts)]->matrices.front();
    const MoeSpec& moe = program_.moes[static_cast<size_t>(op.moe)];
    costs_.expert_rate = stored_.at(&first).rate;
    costs_.expert_bytes += static_cast<double>(BytesOf(first));
    costs_.expert_operations += static_cast<double>(cost.row_operations);
    costs_.num_experts = static_cast<double>(moe.num_experts);
    costs_.experts_per_row = static_cast<double>(moe.top_k);
  }
  void Add(const program::Attend& op, const program::Cost& cost) {
    const AttentionSpan& span = program_.attentions[static_cast<size_t>(op.attention)].span;
    auto found = std::ranges::find_if(
        costs_.attention, [&](const StageCosts::Attention& one) { return one.span == span; });
    if (found == costs_.attention.end())
      found = costs_.attention.insert(found, StageCosts::Attention{.span = span});
    found->position_bytes += static_cast<double>(cost.position_bytes);
    found->position_operations += static_cast<double>(cost.position_operations);
  }

  const program::Program& program_;
  const StoredMatrices& stored_;
  const int64_t kv_bytes_;
  StageCosts& costs_;
  bool is_result_ = false;
};

StageCosts CostsOfStage(const ModelConfig& config, const ModelOptions& options,
                        const RankPlace& place) {
  DecoderWeights weights;
  const ParameterList list = ListParameters(config.spec, weights, place);
  StoredMatrices stored;
  for (const MatrixParameter& matrix : list.matrices) {
    const DataFormat format = PlannedMatrixFormat(matrix, *config.scheme, options.compute_type);
    stored[matrix.target] = {kernels::PackedBytes(format, matrix.rows(), matrix.cols),
                             RateOf(format.type)};
  }
  const program::Program program = program::BuildDecoder(
      {.spec = config.spec, .options = options, .place = place, .weights = weights});
  StageCosts costs;
  Adder(program, stored, BitsPerElement(options.kv_type) / 8, costs).AddAll();
  return costs;
}

}  // namespace

Result<StepCosts> StepCostsOf(const ModelConfig& config, const ModelOptions& options,
                              int tensor_size, int num_stages) {
  if (IsEncoder(config.architecture)) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} is an encoder: models that generate text are simulated",
                            config.architecture),
                "simulate");
  }
  RETURN_IF_ERROR(CheckRanks(config.spec, tensor_size, num_stages));
  StepCosts costs;
  costs.tensor_size = tensor_size;
  costs.vocab_size = config.vocab_size;
  for (int stage = 0; stage < num_stages; ++stage) {
    costs.stages.push_back(CostsOfStage(
        config, options, {.tensor_size = tensor_size, .stage = stage, .num_stages = num_stages}));
  }
  if (tensor_size > 1) {
    constexpr double kHalf = 2;  // bytes of a BF16 element
    const auto layers = static_cast<double>(config.spec.layers.size());
    const auto ranks = static_cast<double>(tensor_size);
    costs.num_exchanges = 2 * layers;
    // A ring reduces a row and distributes the sum: each rank sends 2 (n - 1) / n of the row.
    costs.link_bytes = costs.num_exchanges * static_cast<double>(config.spec.hidden_size) * kHalf *
                       2 * (ranks - 1) / ranks;
  }
  return costs;
}

}  // namespace sluice
