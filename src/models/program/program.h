// A model's forward pass as a list of operators (op.h), with the tables that they name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/decoder_spec.h"
#include "models/program/op.h"
#include "models/weights.h"

namespace sluice::program {

// What the rows of a buffer are.
enum class Extent {
  kOnce,     // there is one
  kStep,     // the rows of the step, later those whose results are wanted
  kWanted,   // rows whose results are wanted
  kPart,     // rows of a part of an MLP (Parts)
  kRounded,  // rows whose inputs are rounded or split at once
  kPairs,    // pairs of a row and an expert
};

// The most rows of a step, and of what it does at once.
struct Limits {
  int64_t rows = 0;
  int64_t wanted = 0;
  int64_t part = 0;
  int64_t rounded = 0;
  int64_t pairs = 0;

  int64_t Of(Extent extent) const;
};

struct Buffer {
  std::string name;
  Extent extent = Extent::kStep;
  int64_t row_bytes = 0;  // the most that an operator takes of it
  int64_t copies = 1;     // one for each step in flight
  // Nothing else uses its memory. Others share memory where they are not alive together.
  bool is_kept = false;
  bool is_results = false;  // the step's results: memory of the caller's
};

// The operators of a layer: [begin, end).
struct LayerOps {
  int32_t begin = 0, end = 0;
};

// What a sequence keeps from step to step. An operator declares it, so that what allocates and
// counts it need not know the model.
struct State {
  std::string name;
  int64_t layer = 0;               // of the cache
  int64_t bytes_per_token = 0;     // in blocks of the KV cache
  int64_t bytes_per_sequence = 0;  // whatever its length
};

// Ownership: the weights that the tables point to outlive it.
struct Program {
  std::vector<const kernels::PackedMatrix*> tables;
  std::vector<const LinearWeights*> linears;
  std::vector<const ExpertWeights*> experts;
  std::vector<const std::vector<float>*> vectors;
  std::vector<AttentionSpec> attentions;  // with the heads that this rank has
  std::vector<MoeSpec> moes;              // with the rows that this rank has
  std::vector<MixerSpec> mixers;          // with the heads that this rank has
  std::vector<std::vector<float>> rope_tables;
  std::vector<std::vector<int8_t>> rope_axes;
  std::vector<Buffer> buffers;
  Limits limits;
  float norm_eps = 0;

  std::vector<State> states;

  std::vector<Op> ops;
  std::vector<LayerOps> layers;
  // From here on, what makes results of the rows that are left; without other stages it follows at
  // once.
  int32_t results_begin = 0;
};

const char* NameOf(const Op& op);

// Whether a matrix that is loaded reads its inputs in an order of its own.
bool OrdersInputs(const Program& program);

// The buffer of that name. REQUIRES: there is one.
BufferId FindBuffer(const Program& program, std::string_view name);

}  // namespace sluice::program
