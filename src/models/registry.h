// The table of model families. A new family is one file that defines its ModelFamily, and one line
// here.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fields.h"
#include "models/model_config.h"

namespace sluice {

// What an architecture's config.json may leave out.
struct ConfigDefaults {
  int64_t head_dim = 0;  // 0: hidden_size / num_attention_heads
  int64_t kv_heads = 0;  // 0: num_attention_heads
  double rms_norm_eps = 1e-6;
  double rope_theta = 0;  // 0: it must be given
  bool tie_word_embeddings = false;
  Activation activation = Activation::kSilu;
  bool is_nested = false;  // the decoder's fields stand in text_config
};

// Everything that is particular to one architecture.
struct ModelFamily {
  std::string_view architecture;  // in config.json's `architectures`
  std::string_view model_type;
  ConfigDefaults defaults;
  // Reads the family's own fields into config.spec, which DescribePlainDecoder has made of the
  // common ones. A setting that would change what the model computes and that is not implemented is
  // kUnsupported.
  Status (*read)(const JsonFields& fields, ModelConfig& config);
};

#define SLUICE_MODEL_FAMILIES(FAMILY) \
  FAMILY(kGemma3)                     \
  FAMILY(kLlama)                      \
  FAMILY(kLlama4)                     \
  FAMILY(kLlama4Text)                 \
  FAMILY(kMistral)                    \
  FAMILY(kQwen2)                      \
  FAMILY(kQwen3)                      \
  FAMILY(kQwen3Moe)

#define SLUICE_DECLARE_FAMILY(name) extern const ModelFamily name;
SLUICE_MODEL_FAMILIES(SLUICE_DECLARE_FAMILY)
#undef SLUICE_DECLARE_FAMILY

std::span<const ModelFamily* const> ModelFamilies();

// Their architectures, sorted.
std::vector<std::string> SupportedArchitectures();

}  // namespace sluice
