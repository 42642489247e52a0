// A model's forward pass as a list of operators (op.h), with the tables to which they refer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/decoder_spec.h"
#include "models/program/op.h"
#include "models/weights.h"

namespace sluice::program {

// The unit of a buffer's rows.
enum class Extent {
  kOnce,     // a single row
  kStep,     // the step's rows; after KeepRows, only the rows with results
  kWanted,   // the rows with results
  kPart,     // the rows of a part of an MLP (Parts)
  kRounded,  // rows that are rounded or split together
  kPairs,    // (row, expert) pairs
};

// Maximum number of rows for each extent.
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
  int64_t row_bytes = 0;  // bytes of a row: the maximum over all operators that use the buffer
  int64_t copies = 1;     // number of copies, one for each step in flight
  // Whether no other buffer may use its memory. Otherwise, buffers that are not in use at the same
  // time share memory.
  bool is_kept = false;
  bool is_results = false;  // whether it is the step's results, in the caller's memory
};

// The operators of a layer: [begin, end).
struct LayerOps {
  int32_t begin = 0, end = 0;
};

// A state that a sequence keeps between steps. Operators declare their states, so that the code
// which allocates and counts states does not depend on the model.
struct State {
  std::string name;
  int64_t layer = 0;               // index of the layer in the cache
  int64_t bytes_per_token = 0;     // bytes in blocks of the KV cache
  int64_t bytes_per_sequence = 0;  // bytes per sequence, independent of its length
};

// Ownership: the weights in the tables outlive the program.
struct Program {
  std::vector<const kernels::PackedMatrix*> tables;
  std::vector<const LinearWeights*> linears;
  std::vector<const ExpertWeights*> experts;
  std::vector<const std::vector<float>*> vectors;
  std::vector<AttentionSpec> attentions;  // with this rank's heads
  std::vector<MoeSpec> moes;              // with this rank's rows
  std::vector<MixerSpec> mixers;          // with this rank's heads
  std::vector<std::vector<float>> rope_tables;
  std::vector<std::vector<int8_t>> rope_axes;
  std::vector<Buffer> buffers;
  Limits limits;
  float norm_eps = 0;

  std::vector<State> states;

  std::vector<Op> ops;
  std::vector<LayerOps> layers;
  // Operators from here on compute results from the remaining rows. With a single stage, they
  // directly follow the layers.
  int32_t results_begin = 0;
};

const char* NameOf(const Op& op);

// Returns the number of elements in the widest row that an operator multiplies by a matrix.
int64_t WidestInput(const Program& program);

// Returns whether any loaded matrix reorders its inputs.
bool OrdersInputs(const Program& program);

// On a device: the buffer of Model::handed_rows().
inline constexpr std::string_view kHandedRows = "handed_rows";

// Returns the buffer with this name. REQUIRES: the buffer exists.
BufferId FindBuffer(const Program& program, std::string_view name);

}  // namespace sluice::program
