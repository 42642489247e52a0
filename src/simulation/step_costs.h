// What the operators of a model's program read and compute, summed up once, so that a step can be
// priced without walking the program.
#pragma once

#include <cstdint>
#include <vector>

#include "base/attention_span.h"
#include "base/result.h"
#include "models/model.h"
#include "models/model_config.h"

namespace sluice {

// At which of a device's rates products with these weights are computed.
enum class ProductRate : uint8_t { kBf16, kFp8, kFp4 };

// The share of one rank, in all layers of its stage together.
struct StageCosts {
  struct Products {
    double bytes = 0;           // of weights
    double row_operations = 0;  // per row
  };
  std::vector<Products> dense = std::vector<Products>(3);  // by ProductRate
  Products head;                                           // rows whose logits are wanted
  // Experts: of each expert in all layers, and per row the chosen ones.
  double expert_bytes = 0, expert_operations = 0;
  ProductRate expert_rate = ProductRate::kBf16;
  double num_experts = 0, experts_per_row = 0;
  // Attention by the positions that its layers see.
  struct Attention {
    AttentionSpan span;
    double position_bytes = 0;       // per position of a sequence
    double position_operations = 0;  // per row and position
  };
  std::vector<Attention> attention;
  int64_t num_layers = 0;
};

struct StepCosts {
  std::vector<StageCosts> stages;  // of the rank with most to do
  int tensor_size = 1;
  // Per row: bytes that a rank sends in the exchanges of all stages, two a layer, by a ring.
  double link_bytes = 0;
  double num_exchanges = 0;
  int64_t vocab_size = 0;
};

// The costs of the decoder that `config` describes, from config.json alone. kUnsupported for
// encoders; errors of CheckRanks.
Result<StepCosts> StepCostsOf(const ModelConfig& config, const ModelOptions& options,
                              int tensor_size, int num_stages);

}  // namespace sluice
