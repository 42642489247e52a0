// The table of model families. A new family is one file that defines its ModelFamily, and one line
// here.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fields.h"
#include "models/model_config.h"

namespace sluice {

// What an architecture's config.json may leave out.
struct ConfigDefaults {
  int64_t vocab_size = 0;  // 0: it must be given, as the next two
  int64_t num_attention_heads = 0;
  int64_t max_position_embeddings = 0;
  int64_t head_dim = 0;  // 0: hidden_size / num_attention_heads
  int64_t kv_heads = 0;  // 0: num_attention_heads
  double rms_norm_eps = 1e-6;
  double rope_theta = 0;  // 0: it must be given
  // The part of a head that rope rotates; nullopt: all, and config.json may not say otherwise.
  std::optional<double> partial_rotary_factor = {};
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  Activation activation = Activation::kSilu;
  bool is_nested = false;  // the decoder's fields stand in text_config
  // max_position_embeddings is what the scaling of rope reaches, not what it starts from.
  bool positions_are_scaled = false;
};

// What people are told of a family: `sluice help --models`, docs/models.md.
struct FamilyNotes {
  std::string_view models = {};     // published ones, with their sizes
  std::string_view operators = {};  // beside or in place of Llama's
  // The checkpoints of tests/data/checkpoints on which it is held against transformers.
  std::string_view golden = {};
  // Of them the largest root mean square error of a position's log probabilities, in float32.
  double error = 0;
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
  FamilyNotes notes = {};
};

#define SLUICE_MODEL_FAMILIES(FAMILY) \
  FAMILY(kGemma2)                     \
  FAMILY(kGemma3)                     \
  FAMILY(kGemma3Nested)               \
  FAMILY(kGemma4)                     \
  FAMILY(kGemma4Nested)               \
  FAMILY(kGemma4Unified)              \
  FAMILY(kGlm4Moe)                    \
  FAMILY(kGptOss)                     \
  FAMILY(kGranite)                    \
  FAMILY(kGraniteHybrid)              \
  FAMILY(kLlama)                      \
  FAMILY(kLlama4)                     \
  FAMILY(kLlama4Text)                 \
  FAMILY(kMinistral)                  \
  FAMILY(kMinistral3)                 \
  FAMILY(kMistral)                    \
  FAMILY(kMistral3)                   \
  FAMILY(kMixtral)                    \
  FAMILY(kOlmo2)                      \
  FAMILY(kOlmo3)                      \
  FAMILY(kPhi3)                       \
  FAMILY(kQwen2)                      \
  FAMILY(kQwen2Moe)                   \
  FAMILY(kQwen3)                      \
  FAMILY(kQwen3Moe)                   \
  FAMILY(kSmolLm3)

#define SLUICE_DECLARE_FAMILY(name) extern const ModelFamily name;
SLUICE_MODEL_FAMILIES(SLUICE_DECLARE_FAMILY)
#undef SLUICE_DECLARE_FAMILY

std::span<const ModelFamily* const> ModelFamilies();

// Their architectures, sorted.
std::vector<std::string> SupportedArchitectures();

}  // namespace sluice
