// Which modules of a decoder adapters may change, and where the factors for them lie in the memory
// of an adapter.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/lora_options.h"
#include "models/row_range.h"
#include "models/shard.h"
#include "models/weights.h"
#include "models/workspace.h"

namespace sluice {

inline constexpr const char* kEmbeddingModule = "model.embed_tokens";
inline constexpr const char* kHeadModule = "lm_head";

// A module that has factors: a linear layer of the checkpoint, or the embedding.
struct LoraModule {
  std::string name;  // "model.layers.0.self_attn.q_proj"
  int64_t rows = 0, cols = 0;
  bool is_embedding = false;  // A is looked up by tokens: [rank, cols], cols being the vocabulary
  // Of the rows, what this rank computes, in the order of its results; empty: nothing. Where it
  // computes some, it has all of A, and of B these rows, so that no sum is cut.
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
  // Of expert 0, in LoraLayout::modules, in the order of their rows; those of the others follow.
  size_t first_module = 0;
  size_t modules_each = 0;
  int64_t num_experts = 0;
  int64_t rows = 0, cols = 0;  // of one expert
};

// Constant after For(). A linear layer knows its LoraLayer by LinearWeights::lora_layer.
struct LoraLayout {
  // Of the parameters that the rank at `place` holds; sets the `lora_layer` of their LinearWeights
  // and ExpertWeights, and of the embedding and the head in `weights`.
  static LoraLayout For(const DecoderSpec& spec, const LoraOptions& options,
                        const ParameterList& parameters, DecoderWeights& weights,
                        const RankPlace& place = {});

  // The module of that name, or null.
  const LoraModule* Find(std::string_view name) const;
  // The last parts of the modules' names, each once: what a refusal lists.
  std::vector<std::string> TargetNames() const;
  // Sum of the ranks of a layer's modules, each rounded up as the kernels do.
  int64_t MostRanks() const;
  // Experts of a row where adapters may change experts, and the pairs of a row and an expert that a
  // step of up to `max_rows` rows computes at once.
  int64_t top_k = 0;
  int64_t MostPairs(int64_t max_rows) const { return MostExpertPairs(top_k, max_rows); }
  // Bytes of all adapters that this rank holds, and of a step's scratch memory for `max_rows` rows.
  int64_t SlotBytes() const { return options.num_slots * slot_bytes; }
  int64_t StepBytes(int64_t max_rows) const;

  LoraOptions options;
  std::vector<LoraModule> modules;  // of the whole model
  std::vector<LoraLayer> layers;
  std::vector<LoraExperts> experts;
  int64_t slot_bytes = 0;

 private:
  // Gives it memory.
  void Hold(LoraModule& module);
  void Add(LoraModule module);
  // The modules of an expert, of the whole model.
  void AddExpert(const MatrixParameter& matrix, bool is_mixed);
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace sluice
