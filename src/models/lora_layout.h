// The modules of a decoder that adapters may change, and the offsets of their factors in an
// adapter's memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/input_rounding.h"
#include "models/lora_options.h"
#include "models/row_range.h"
#include "models/shard.h"
#include "models/weights.h"

namespace sluice {

inline constexpr const char* kEmbeddingModule = "model.embed_tokens";
inline constexpr const char* kHeadModule = "lm_head";

// A module that has factors: a linear layer of the checkpoint, or the embedding.
struct LoraModule {
  std::string name;  // for example "model.layers.0.self_attn.q_proj"
  int64_t rows = 0, cols = 0;
  // If true, A is indexed by token: [rank, cols], where cols is the vocabulary size.
  bool is_embedding = false;
  // The output rows that this rank computes, in the order of its results; empty: none. A rank that
  // computes any rows stores all of A and these rows of B, so that no sum is divided among ranks.
  std::vector<RowRange> held = {};
  int64_t first_col = 0;  // first column of its results in the layer's results
  // Offsets of the stored factors in an adapter's memory, in bytes.
  int64_t a_offset = 0, b_offset = 0;

  int64_t held_rows() const;
};

// Modules that one product computes, stacked by rows: [first, first + count) of
// LoraLayout::modules.
struct LoraLayer {
  size_t first = 0, count = 0;
};

// One linear layer of all experts. peft may store its factors in tensors that contain all experts
// (target_parameters): A [experts * rank, cols] and B [rows, rank * experts], where an expert's
// columns are `experts` apart.
struct LoraExperts {
  std::string name;    // name of the module: "model.layers.0.mlp.experts"
  std::string tensor;  // name of the tensor: "gate_up_proj"
  // Expert 0's modules in LoraLayout::modules, by row. Those of the other experts follow.
  size_t first_module = 0;
  size_t modules_each = 0;
  int64_t num_experts = 0;
  int64_t rows = 0, cols = 0;  // size of one expert's matrix
};

// A tensor of the base that an adapter may replace (peft's modules_to_save and bias).
struct LoraReplaceable {
  enum class Kind {
    kMatrix,  // the weight of a linear layer or of the head, [rows, cols]
    kTable,   // the embedding, [rows, cols]
    kVector,  // a bias, a norm, or score weights: [rows] or [rows / width, width]
  };
  Kind kind = Kind::kMatrix;
  // Name of the tensor.
  std::string tensor;
  int64_t rows = 0, cols = 1;
  // Whether slots have room for the tensor. For a matrix: its bytes in each slot of this rank.
  bool has_room = false;
  int64_t bytes = 0;
  // The rows that this rank has, in the order of its results; empty: none.
  std::vector<RowRange> held = {};
  // Position of the first of these rows: a column of the layer's results, or an index in the
  // vector.
  int64_t first = 0;
  // Only for kMatrix: the layer; null for a head that is tied to the embedding.
  const LinearWeights* linear = nullptr;
  // Only for kVector: index into LoraLayout::vectors. A stored number x becomes x * factor + add.
  size_t vector = 0;
  float factor = 1, add = 0;
  int64_t width = 0;

  std::vector<int64_t> shape() const;
  int64_t held_rows() const;
};

// Constant after For(). LinearWeights::lora_layer is the index of a linear layer's LoraLayer.
struct LoraLayout {
  // Returns the layout for the parameters of the rank at `place`. Sets `lora_layer` of their
  // LinearWeights and ExpertWeights, and the corresponding members for the embedding and the head
  // in `weights`.
  static LoraLayout For(const DecoderSpec& spec, const LoraOptions& options,
                        const ParameterList& parameters, DecoderWeights& weights,
                        const RankPlace& place = {});

  // Returns the module with this name, or null.
  const LoraModule* Find(std::string_view name) const;
  // Returns the tensor with this name if an adapter may replace it, or null.
  const LoraReplaceable* FindReplaceable(std::string_view tensor) const;
  // Returns the distinct last parts of the modules' names, for error messages.
  std::vector<std::string> TargetNames() const;
  // Returns the largest possible sum of the ranks of a layer's modules, each rounded up as the
  // kernels do.
  int64_t MostRanks() const;
  // Number of experts per row (0 unless adapters may change experts), and maximum number of (row,
  // expert) pairs that are computed together in a step of up to `max_rows` rows.
  int64_t top_k = 0;
  int64_t MostPairs(int64_t max_rows) const { return MostExpertPairs(top_k, max_rows); }
  // These functions return the bytes of all adapters on this rank, and of the scratch memory of a
  // step with `max_rows` rows.
  int64_t SlotBytes() const { return options.num_slots * (slot_bytes + replaced_bytes); }
  int64_t StepBytes(int64_t max_rows) const;

  LoraOptions options;
  std::vector<LoraModule> modules;  // modules of the whole model
  std::vector<LoraLayer> layers;
  std::vector<LoraExperts> experts;
  int64_t slot_bytes = 0;  // bytes for factors in each slot
  int64_t vocab_size = 0;
  std::vector<LoraReplaceable> replaceables;  // replaceable tensors of the whole model
  // A vector of the base on this rank that contains replaceable tensors.
  struct Vector {
    // The base's vector, which is filled when the base is loaded.
    const std::vector<float>* base = nullptr;
    int64_t size = 0;
  };
  std::vector<Vector> vectors;
  int64_t replaced_bytes = 0;  // bytes in each slot for tensors that replace the base's

 private:
  // Adds the replaceable tensors of the whole model. `whole`: its parameters, with targets in
  // `unfilled`.
  void AddReplaceables(const DecoderSpec& spec, const ParameterList& whole,
                       const DecoderWeights& unfilled);
  // Finds this rank's rows of the replaceable tensors and assigns memory to them.
  void HoldReplaceables(const DecoderSpec& spec, const ParameterList& parameters,
                        const DecoderWeights& weights, const RankPlace& place);
  // Assigns memory to the module.
  void Hold(LoraModule& module);
  void Add(LoraModule module);
  // Adds an expert's modules of the whole model.
  void AddExpert(const MatrixParameter& matrix, bool is_mixed);
  std::map<std::string, size_t, std::less<>> by_name_;
  std::map<std::string, size_t, std::less<>> replaceable_by_name_;
};

}  // namespace sluice
