// Which modules of a decoder adapters may change, and where the factors for them lie in the memory
// of an adapter.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/lora_options.h"
#include "models/weights.h"

namespace sluice {

inline constexpr const char* kEmbeddingModule = "model.embed_tokens";
inline constexpr const char* kHeadModule = "lm_head";

// A module that has factors: a linear layer of the checkpoint, or the embedding.
struct LoraModule {
  std::string name;  // "model.layers.0.self_attn.q_proj"
  int64_t rows = 0, cols = 0;
  bool is_embedding = false;  // A is looked up by tokens: [rank, cols], cols being the vocabulary
  int64_t first_col = 0;      // of its results in a row of its layer's
  int64_t a_offset = 0, b_offset = 0;  // bytes in the memory of an adapter
};

// Modules that are computed by one product, one below the other: [first, first + count) of
// LoraLayout::modules.
struct LoraLayer {
  size_t first = 0, count = 0;
};

// Constant after For(). A linear layer knows its LoraLayer by LinearWeights::lora_layer.
struct LoraLayout {
  // Of the parameters that one rank holds of the whole model; sets the `lora_layer` of their
  // LinearWeights, and of the embedding and the head in `weights`.
  static LoraLayout For(const DecoderSpec& spec, const LoraOptions& options,
                        const ParameterList& parameters, DecoderWeights& weights);

  // The module of that name, or null.
  const LoraModule* Find(std::string_view name) const;
  // The last parts of the modules' names, each once: what a refusal lists.
  std::vector<std::string> TargetNames() const;
  // Sum of the ranks of a layer's modules, each rounded up as the kernels do.
  int64_t MostRanks() const;
  // Bytes of all adapters, and of a step's scratch memory for `max_rows` rows.
  int64_t TotalBytes(int64_t max_rows) const;

  LoraOptions options;
  std::vector<LoraModule> modules;
  std::vector<LoraLayer> layers;
  int64_t slot_bytes = 0;

 private:
  void Add(LoraModule module);
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace sluice
