// A model's forward pass as a list of operators (op.h), with the tables that they refer to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/decoder_spec.h"
#include "models/program/op.h"
#include "models/weights.h"

namespace sluice::program {

// What a buffer's rows correspond to.
enum class Extent {
  kOnce,     // a single row
  kStep,     // the step's rows; later only the wanted ones
  kWanted,   // rows whose results are wanted
  kPart,     // the rows of a part of an MLP (Parts)
  kRounded,  // rows that are rounded or split together
  kPairs,    // (row, expert) pairs
};

// Maximum number of rows of each extent.
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
  int64_t row_bytes = 0;  // the maximum over its operators
  int64_t copies = 1;     // one for each step in flight
  // If true, no other buffer uses its memory. Otherwise, buffers not alive together share memory.
  bool is_kept = false;
  bool is_results = false;  // the step's results, in the caller's memory
};

// The operators of a layer: [begin, end).
struct LayerOps {
  int32_t begin = 0, end = 0;
};

// State that a sequence keeps between steps. Operators declare it, so that code which allocates and
// counts it need not know the model.
struct State {
  std::string name;
  int64_t layer = 0;               // of the cache
  int64_t bytes_per_token = 0;     // in blocks of the KV cache
  int64_t bytes_per_sequence = 0;  // independent of its length
};

// Ownership: the weights in the tables outlive the program.
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
  // Operators from here on compute results from the remaining rows; with a single stage they follow
  // directly.
  int32_t results_begin = 0;
};

const char* NameOf(const Op& op);

// Whether any loaded matrix reorders its inputs.
bool OrdersInputs(const Program& program);

// The buffer with this name. REQUIRES: it exists.
BufferId FindBuffer(const Program& program, std::string_view name);

}  // namespace sluice::program
