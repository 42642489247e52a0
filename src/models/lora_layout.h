// Which modules of a decoder adapters may change, and where the factors for them lie in the memory
// of an adapter.
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
  std::string name;  // "model.layers.0.self_attn.q_proj"
  int64_t rows = 0, cols = 0;
  bool is_embedding = false;  // A is looked up by tokens: [rank, cols], cols being the vocabulary
  // The rows that this rank computes, in the order of its results; empty: none. A rank that
  // computes rows has all of A and these rows of B, so that no sum is cut.
  std::vector<RowRange> held = {};
  int64_t first_col = 0;               // of its results in a row of its layer's
  int64_t a_offset = 0, b_offset = 0;  // bytes in the memory of an adapter, of what is held

  int64_t held_rows() const;
};

// Modules that are computed by one product, one below the other: [first, first + count) of
// LoraLayout::modules.
struct LoraLayer {
  size_t first = 0, count = 0;
};

// One linear layer of all experts, for which peft may hold the factors in tensors of all
// (target_parameters): A [experts * rank, cols] and B [rows, rank * experts], in which the columns
// of an expert are `experts` apart.
struct LoraExperts {
  std::string name;    // of the module: "model.layers.0.mlp.experts"
  std::string tensor;  // "gate_up_proj"
  // Expert 0's modules in LoraLayout::modules, in the order of their rows; the others follow.
  size_t first_module = 0;
  size_t modules_each = 0;
  int64_t num_experts = 0;
  int64_t rows = 0, cols = 0;  // of one expert
};

// A tensor of the base that an adapter may replace (peft's modules_to_save and bias).
struct LoraReplaceable {
  enum class Kind {
    kMatrix,  // [rows, cols], the weight of a linear layer or of the head
    kTable,   // [rows, cols], the embedding
    kVector,  // [rows], or [rows / width, width]: a bias, a norm, the scores' weights
  };
  Kind kind = Kind::kMatrix;
  std::string tensor;  // "model.layers.0.self_attn.q_proj.weight"
  int64_t rows = 0, cols = 1;
  // Whether slots have room for it. Of a matrix, what it would take of each slot of this rank.
  bool has_room = false;
  int64_t bytes = 0;
  // The rows that this rank holds, in the order of its results; empty: none.
  std::vector<RowRange> held = {};
  // The first of them: its column in the layer's results, or its place in the vector.
  int64_t first = 0;
  // kMatrix: the layer; null for a head that reads the embedding's table.
  const LinearWeights* linear = nullptr;
  // kVector: index into LoraLayout::vectors, and what becomes of a stored number: * factor + add.
  size_t vector = 0;
  float factor = 1, add = 0;
  int64_t width = 0;

  std::vector<int64_t> shape() const;
  int64_t held_rows() const;
};

// Constant after For(). A linear layer knows its LoraLayer by LinearWeights::lora_layer.
struct LoraLayout {
  // The layout of the parameters that the rank at `place` holds; sets the `lora_layer` of their
  // LinearWeights and ExpertWeights, and of the embedding and the head in `weights`.
  static LoraLayout For(const DecoderSpec& spec, const LoraOptions& options,
                        const ParameterList& parameters, DecoderWeights& weights,
                        const RankPlace& place = {});

  // The module of that name, or null.
  const LoraModule* Find(std::string_view name) const;
  // The tensor that an adapter may replace, or null.
  const LoraReplaceable* FindReplaceable(std::string_view tensor) const;
  // The last parts of the modules' names, each once: what a refusal lists.
  std::vector<std::string> TargetNames() const;
  // Sum of the ranks of a layer's modules, each rounded up as the kernels do.
  int64_t MostRanks() const;
  // Experts of a row where adapters may change experts, and the pairs of a row and an expert that a
  // step of up to `max_rows` rows computes at once.
  int64_t top_k = 0;
  int64_t MostPairs(int64_t max_rows) const { return MostExpertPairs(top_k, max_rows); }
  // Bytes of all adapters that this rank holds, and of a step's scratch memory for `max_rows` rows.
  int64_t SlotBytes() const { return options.num_slots * (slot_bytes + replaced_bytes); }
  int64_t StepBytes(int64_t max_rows) const;

  LoraOptions options;
  std::vector<LoraModule> modules;  // of the whole model
  std::vector<LoraLayer> layers;
  std::vector<LoraExperts> experts;
  int64_t slot_bytes = 0;  // of factors
  int64_t vocab_size = 0;
  std::vector<LoraReplaceable> replaceables;  // of the whole model
  // The base's vectors that hold replaceable ones; of this rank.
  struct Vector {
    const std::vector<float>* base = nullptr;  // filled when the base is loaded
    int64_t size = 0;
  };
  std::vector<Vector> vectors;
  int64_t replaced_bytes = 0;  // of a slot, for what replaces tensors of the base

 private:
  // Adds the whole model's replaceable tensors; `whole` has targets in `unfilled`.
  void AddReplaceables(const DecoderSpec& spec, const ParameterList& whole,
                       const DecoderWeights& unfilled);
  // Finds this rank's rows of the replaceable tensors, and their memory.
  void HoldReplaceables(const DecoderSpec& spec, const ParameterList& parameters,
                        const DecoderWeights& weights, const RankPlace& place);
  // Gives it memory.
  void Hold(LoraModule& module);
  void Add(LoraModule module);
  // The modules of an expert, of the whole model.
  void AddExpert(const MatrixParameter& matrix, bool is_mixed);
  std::map<std::string, size_t, std::less<>> by_name_;
  std::map<std::string, size_t, std::less<>> replaceable_by_name_;
};

}  // namespace sluice
