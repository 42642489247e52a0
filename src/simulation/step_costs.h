// Sums up what the operators of a model's program read and compute, so that a step's time can be
// predicted without the program.
#pragma once

#include <cstdint>
#include <vector>

#include "base/attention_span.h"
#include "base/result.h"
#include "models/model.h"
#include "models/model_config.h"

namespace sluice {

// Selects the device's rate for products with weights of this type.
enum class ProductRate : uint8_t { kBf16, kFp8, kFp4 };

// The costs of one rank in all layers of its stage.
struct StageCosts {
  struct Products {
    double bytes = 0;           // bytes of weights
    double row_operations = 0;  // floating-point operations per row
  };
  std::vector<Products> dense = std::vector<Products>(3);  // indexed by ProductRate
  // The product of the output head, for the rows whose logits are computed.
  Products head;
  // Mixture of experts: bytes and operations of one expert, summed over all layers. A row visits
  // `experts_per_row` of `num_experts`.
  double expert_bytes = 0, expert_operations = 0;
  ProductRate expert_rate = ProductRate::kBf16;
  double num_experts = 0, experts_per_row = 0;
  // Costs of attention in all layers with the same span.
  struct Attention {
    AttentionSpan span;
    double position_bytes = 0;       // bytes read per position of a sequence
    double position_operations = 0;  // operations per row and position
  };
  std::vector<Attention> attention;
  int64_t num_layers = 0;
};

struct StepCosts {
  std::vector<StageCosts> stages;  // for each stage, the costs of the rank with the most work
  int tensor_size = 1;
  // Bytes that a rank sends per row in the exchanges of all stages: two exchanges per layer, each
  // in a ring.
  double link_bytes = 0;
  double num_exchanges = 0;
  int64_t vocab_size = 0;
};

// Computes the costs of the decoder that `config` describes; reads no checkpoint. kUnsupported for
// encoders. Other errors are those of CheckRanks.
Result<StepCosts> StepCostsOf(const ModelConfig& config, const ModelOptions& options,
                              int tensor_size, int num_stages);

}  // namespace sluice
