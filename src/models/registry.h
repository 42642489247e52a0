// The table of model families. To add a family, add a file that defines its ModelFamily and a line
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

// Two names of a field of config.json, such as "n_embd" and "hidden_size". `other`: the name in the
// architecture's files; `own`: the name that this program reads. If a file has both, `own` takes
// precedence.
struct FieldAlias {
  std::string_view other, own;
};

// Defaults of fields that an architecture's config.json may omit, as in transformers' configuration
// class.
struct ConfigDefaults {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t kv_heads = 0;  // default of num_key_value_heads; 0: num_attention_heads
  int64_t head_dim = 0;  // default of head_dim; 0: hidden_size / num_attention_heads
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  std::string_view norm_eps_field = "rms_norm_eps";
  bool has_layer_norms = false;  // whether norms are layer norms instead of RMS norms
  double rope_theta = 10000;
  // JSON of the default rope_parameters, if neither they nor rope_scaling are given; "": no
  // scaling.
  std::string_view rope_parameters = {};
  // The default original positions of rope_scaling; 0: max_position_embeddings.
  int64_t original_max_position_embeddings = 0;
  // Default fraction of a head that RoPE rotates; nullopt: always the whole head, whatever
  // config.json contains.
  std::optional<double> partial_rotary_factor = {};
  bool takes_rotary_dim = false;  // whether config.json may have rotary_dim instead of a fraction
  // If not 0: the default of rotary_dim if config.json has neither field.
  int64_t default_rotary_dim = 0;
  std::optional<int32_t> bos_token_id = {};
  std::optional<int32_t> eos_token_id = {};
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  Activation activation = Activation::kSilu;
  // Another name of `activation` in config.json; "": none.
  std::string_view own_activation = {};
  bool is_nested = false;    // the decoder's fields are in text_config
  bool may_be_flat = false;  // whether older files have them at the top level instead
  // Whether max_position_embeddings is the length after RoPE scaling instead of before it.
  bool positions_are_scaled = false;
  // For latent attention: default of qk_rope_head_dim, the size of the rotated part of a head,
  // which is independent of head_dim; 0: heads are not divided.
  int64_t rope_head_dim = 0;
  // Whether rope_type "dynamic" may have an `alpha`, which raises the base for all context lengths.
  bool takes_rope_alpha = false;
  // Fields that the architecture names differently.
  std::span<const FieldAlias> aliases = {};
};

// Documentation of a family, for `sluice help --models` and docs/models.md.
struct FamilyNotes {
  std::string_view models = {};  // published models, with their sizes
  // Operators that it needs in addition to, or instead of, those of Llama.
  std::string_view operators = {};
  // Checkpoints of tests/data/checkpoints that are compared with transformers.
  std::string_view golden = {};
  // The largest root mean square error of the log probabilities of a position in these checkpoints,
  // in float32.
  double error = 0;
};

// The properties of an architecture.
struct ModelFamily {
  // A name in config.json's `architectures`. Families with the same name have different
  // model_types.
  std::string_view architecture;
  std::string_view model_type;
  ConfigDefaults defaults;
  // Reads the family's own fields into config.spec, in which DescribePlainDecoder has already set
  // the common fields. kUnsupported if a setting that affects the model's results is not
  // implemented.
  Status (*read)(const JsonFields& fields, ModelConfig& config);
  FamilyNotes notes = {};
  // If text_config's model_type selects one of several decoders: returns that decoder's defaults.
  // Null: `defaults` apply to all.
  const ConfigDefaults& (*text_defaults)(std::string_view text_type) = nullptr;
  // Another name of the model_type; "": none.
  std::string_view second_type = {};
  // Another name of the architecture, in files published with their own code.
  std::string_view published_architecture = {};
  // If not empty, the decoder belongs to another family, which text_config's model_type names.
  // These are the possible values of that field; the first one is the default. In this case `read`
  // is null, and of `defaults` only tie_word_embeddings, is_nested and may_be_flat are used.
  std::span<const std::string_view> text_types = {};
};

#define SLUICE_MODEL_FAMILIES(FAMILY) \
  FAMILY(kAfmoe)                      \
  FAMILY(kApertus)                    \
  FAMILY(kApertus15)                  \
  FAMILY(kArcee)                      \
  FAMILY(kAriaText)                   \
  FAMILY(kAxk1)                       \
  FAMILY(kAyaVision)                  \
  FAMILY(kBailingHybrid)              \
  FAMILY(kBamba)                      \
  FAMILY(kBeam)                       \
  FAMILY(kBioGpt)                     \
  FAMILY(kBitNet)                     \
  FAMILY(kCodeGen)                    \
  FAMILY(kCohere)                     \
  FAMILY(kCohere2)                    \
  FAMILY(kCohere2Moe)                 \
  FAMILY(kCohereCompass)              \
  FAMILY(kCohereCompassText)          \
  FAMILY(kCwm)                        \
  FAMILY(kDbrx)                       \
  FAMILY(kDeepseekV2)                 \
  FAMILY(kDeepseekV3)                 \
  FAMILY(kDeepseekV4)                 \
  FAMILY(kDeepseekV32)                \
  FAMILY(kDots1)                      \
  FAMILY(kErnie4_5)                   \
  FAMILY(kErnie4_5Moe)                \
  FAMILY(kExaone)                     \
  FAMILY(kExaone4)                    \
  FAMILY(kExaoneMoe)                  \
  FAMILY(kFalcon)                     \
  FAMILY(kFalconH1)                   \
  FAMILY(kFlexOlmo)                   \
  FAMILY(kFlint)                      \
  FAMILY(kGemma)                      \
  FAMILY(kGemma2)                     \
  FAMILY(kGemma3)                     \
  FAMILY(kGemma3Nested)               \
  FAMILY(kGemma4)                     \
  FAMILY(kGemma4Nested)               \
  FAMILY(kGemma4Unified)              \
  FAMILY(kGemma4UnifiedText)          \
  FAMILY(kGlm)                        \
  FAMILY(kGlm4)                       \
  FAMILY(kGlm4v)                      \
  FAMILY(kGlm4vMoe)                   \
  FAMILY(kGlm4Moe)                    \
  FAMILY(kGlm4MoeLite)                \
  FAMILY(kGlmMoeDsa)                  \
  FAMILY(kGlmOcr)                     \
  FAMILY(kGpt2)                       \
  FAMILY(kGptBigCode)                 \
  FAMILY(kGptJ)                       \
  FAMILY(kGptNeo)                     \
  FAMILY(kGptNeoX)                    \
  FAMILY(kGptOss)                     \
  FAMILY(kGranite)                    \
  FAMILY(kGraniteHybrid)              \
  FAMILY(kGraniteMoe)                 \
  FAMILY(kGraniteMoeShared)           \
  FAMILY(kGraniteMoeSwa)              \
  FAMILY(kGraniteSwa)                 \
  FAMILY(kHelium)                     \
  FAMILY(kHunYuanDenseV1)             \
  FAMILY(kHunYuanMoeV1)               \
  FAMILY(kHyperClovaX)                \
  FAMILY(kHyV3)                       \
  FAMILY(kIdefics3)                   \
  FAMILY(kInternLm3)                  \
  FAMILY(kInternVl)                   \
  FAMILY(kIQuestCoder)                \
  FAMILY(kJais2)                      \
  FAMILY(kKimiK25)                    \
  FAMILY(kKimiLinear)                 \
  FAMILY(kKolibri)                    \
  FAMILY(kLaguna)                     \
  FAMILY(kLaraMini)                   \
  FAMILY(kLfm2)                       \
  FAMILY(kLfm2Moe)                    \
  FAMILY(kLfm2Vl)                     \
  FAMILY(kLfm3)                       \
  FAMILY(kLlama)                      \
  FAMILY(kLlama4)                     \
  FAMILY(kLlama4Text)                 \
  FAMILY(kLlava)                      \
  FAMILY(kLlavaNext)                  \
  FAMILY(kMellum)                     \
  FAMILY(kMimo)                       \
  FAMILY(kMimoV2Flash)                \
  FAMILY(kMiniCpm3)                   \
  FAMILY(kMiniMaxM2)                  \
  FAMILY(kMiniMaxM3)                  \
  FAMILY(kMiniMaxM3Text)              \
  FAMILY(kMinistral)                  \
  FAMILY(kMinistral3)                 \
  FAMILY(kMistral)                    \
  FAMILY(kMistral3)                   \
  FAMILY(kMistral4)                   \
  FAMILY(kMixtral)                    \
  FAMILY(kMuseGlimmer)                \
  FAMILY(kNanoChat)                   \
  FAMILY(kNemotron)                   \
  FAMILY(kNemotronH)                  \
  FAMILY(kOlmo)                       \
  FAMILY(kOlmo2)                      \
  FAMILY(kOlmo3)                      \
  FAMILY(kOlmoe)                      \
  FAMILY(kOlmoHybrid)                 \
  FAMILY(kOpt)                        \
  FAMILY(kPaddleOcrVl)                \
  FAMILY(kPersimmon)                  \
  FAMILY(kPhi)                        \
  FAMILY(kPhi3)                       \
  FAMILY(kPhimoe)                     \
  FAMILY(kQwen2)                      \
  FAMILY(kQwen25Vl)                   \
  FAMILY(kQwen2Vl)                    \
  FAMILY(kQwen2Moe)                   \
  FAMILY(kQwen3)                      \
  FAMILY(kQwen3Moe)                   \
  FAMILY(kQwen35)                     \
  FAMILY(kQwen35Moe)                  \
  FAMILY(kQwen35MoeNested)            \
  FAMILY(kQwen35Nested)               \
  FAMILY(kQwen3Next)                  \
  FAMILY(kQwen3Vl)                    \
  FAMILY(kQwen3VlMoe)                 \
  FAMILY(kSarvamMoe)                  \
  FAMILY(kSarvamMla)                  \
  FAMILY(kSeedOss)                    \
  FAMILY(kSmolLm3)                    \
  FAMILY(kSmolVlm)                    \
  FAMILY(kSolarOpen)                  \
  FAMILY(kStableLm)                   \
  FAMILY(kStarcoder2)                 \
  FAMILY(kStep3p7)                    \
  FAMILY(kVaultGemma)                 \
  FAMILY(kYoutu)

#define SLUICE_DECLARE_FAMILY(name) extern const ModelFamily name;
SLUICE_MODEL_FAMILIES(SLUICE_DECLARE_FAMILY)
#undef SLUICE_DECLARE_FAMILY

std::span<const ModelFamily* const> ModelFamilies();

// The architectures of all families, sorted.
std::vector<std::string> SupportedArchitectures();

}  // namespace sluice
