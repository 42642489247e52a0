// Readers of config.json fields that several model families share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fields.h"
#include "base/result.h"
#include "models/model_config.h"

namespace sluice {

// Values in layer_types.
constexpr const char* kFullAttention = "full_attention";
constexpr const char* kSlidingAttention = "sliding_attention";
// Values in mlp_layer_types.
constexpr const char* kDenseMlp = "dense";
constexpr const char* kSparseMlp = "sparse";

// Bounds that keep any product of two dimensions within 64 bits; dimensions of published models are
// far smaller.
constexpr int64_t kMaxConfigPositions = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxConfigWidth = int64_t{1} << 20;
constexpr int64_t kMaxConfigLayers = 4096;
constexpr int64_t kMaxConfigExperts = 4096;

// Reads layer_types, which has one entry per layer, each of them in `kinds`; nullopt if absent.
Result<std::optional<std::vector<std::string>>> ReadLayerTypes(
    const JsonFields& fields, const ModelConfig& config, const std::vector<std::string>& kinds);

// Checks that every layer attends to all positions.
Status ReadFullAttention(const JsonFields& fields, const ModelConfig& config);

// Reads sliding_window for all layers; null or absent: no window.
Status ReadWindow(const JsonFields& fields, ModelConfig& config);

// Reads rope_interleave for all layers: whether RoPE rotates pairs of adjacent elements, as in
// weights in Mistral's own format, which are not permuted (checkpoint/mistral_format.h).
Status ReadRopeStyle(const JsonFields& fields, ModelConfig& config);

// Reads the window of families that have a window only if use_sliding_window is true: the value of
// sliding_window, or `absent` if that field is absent. nullopt if sliding_window is null or
// use_sliding_window is not true.
Result<std::optional<int64_t>> ReadWantedWindow(const JsonFields& fields,
                                                std::optional<int64_t> absent);
constexpr int64_t kDefaultQwenWindow = 4096;

// Reads the layers' windows in the format of Qwen 2 and 3.
Status ReadSlidingAttention(const JsonFields& fields, ModelConfig& config);

// Reads which layers rotate q and k, in the format of Llama 4 and SmolLM3. In no_rope_layers, 1
// stands for a layer WITH RoPE.
Result<std::vector<bool>> ReadRopeLayers(const JsonFields& fields, const ModelConfig& config);

// Reads rope_parameters with one block per kind of layer, as transformers 5 writes it: the block of
// full attention into config.rope, and the block of sliding attention into `local`. Returns false,
// and reads nothing, if there are no such blocks.
Result<bool> ReadRopeBlocks(const JsonFields& fields, double default_local_theta,
                            ModelConfig& config, RopeConfig& local);

// Reads a list of layer indices as one flag per layer; nullopt if absent.
Result<std::optional<std::vector<bool>>> ReadLayerSet(const JsonFields& fields,
                                                      const ModelConfig& config,
                                                      std::string_view name);

// Reads which layers have experts, in the format of Qwen's families.
Result<std::vector<bool>> ReadSparseLayers(const JsonFields& fields, const ModelConfig& config);

// Values in layer_types for layers with mixers.
constexpr const char* kLinearAttention = "linear_attention";
constexpr const char* kConvolution = "conv";

// Replaces attention by the mixer in the layers that are true in `mixes`. kUnsupported if no layer
// with attention is left, because the block cache needs at least one.
Status ReplaceAttention(const std::vector<bool>& mixes, const MixerSpec& mixer,
                        ModelConfig& config);
// Checks a mixer's dimensions: kInvalidData if no mixer can have this convolution width or these
// head counts and sizes. Ignores the module and tensor names in `mixer`. `keys`: field names for
// error messages.
struct MixerKeys {
  const char* width = "linear_conv_kernel_dim";
  const char* heads = "linear_num_value_heads";
  const char* key_heads = "linear_num_key_heads";
};
Status CheckMixer(const JsonFields& fields, const MixerKeys& keys, const MixerSpec& mixer);

// Defaults of Gated DeltaNet's fields, which have Qwen3-Next's names, such as linear_num_key_heads.
struct DeltaDefaults {
  int64_t key_heads = 16, heads = 32, key_dim = 128, head_dim = 128;
};
Result<MixerSpec> ReadDeltaRule(const JsonFields& fields, const DeltaDefaults& defaults,
                                const ModelConfig& config);

// Like ReadSparseLayers, but reads mlp_layer_types. If the field is absent, the layers from
// `first_sparse` on have experts.
Result<std::vector<bool>> ReadMlpLayerTypes(const JsonFields& fields, const ModelConfig& config,
                                            int64_t first_sparse);

// Defaults of families in which most layers attend to a window.
struct WindowDefaults {
  int64_t window = 4096;
  int64_t pattern = 4;  // every pattern-th layer attends to all positions; the others have a window
  const char* pattern_field = "sliding_window_pattern";
};
// Reads layer_types, or else the pattern, and the window of the layers that have one. Returns true
// for each layer with a window.
Result<std::vector<bool>> ReadWindowLayers(const JsonFields& fields, const WindowDefaults& defaults,
                                           ModelConfig& config);

// Defaults of the fields for experts as in DeepSeek V3, which are chosen by sigmoid scores plus a
// bias: groups, norm_topk_prob, routed_scaling_factor, moe_intermediate_size.
struct RouterDefaults {
  bool normalize = true;
  double scale = 1;
  int64_t width = 0;
};
Status ReadSigmoidRouter(const JsonFields& fields, const RouterDefaults& defaults, MoeSpec& moe);

// Reads DecoderSpec::rope_axes, the axis of each rotary frequency, from mrope_section: the numbers
// of frequencies for time, row and column. The frequencies of an axis are consecutive, or
// interleaved with those of the other axes. `absent`: sections that are used if the field is
// absent. REQUIRES: config.rotary_dim is set.
Status ReadRopeAxes(const JsonFields& fields, const std::vector<int64_t>& absent, bool interleaves,
                    ModelConfig& config);

// kUnsupported if `name` is set to anything except null, false and 0.
Status RefuseField(const JsonFields& fields, const char* name, const char* what);

// kUnsupported, naming `key`, if the attention kernels do not support the head width.
Status CheckHeadWidth(int64_t head_dim, const char* key);

// Defaults of ReadExpertCounts for absent fields; nullopt: the field is required.
struct ExpertDefaults {
  std::optional<int64_t> num_experts = {};
  std::optional<int64_t> top_k = {};
  const char* top_k_field = "num_experts_per_tok";
  // Default of moe_intermediate_size; nullopt: the field is not read.
  std::optional<int64_t> intermediate_size = {};
};
// Reads into `moe` the number of experts (under any of its names), the number of experts chosen per
// token, and their width.
Status ReadExpertCounts(const JsonFields& fields, const ExpertDefaults& defaults, MoeSpec& moe);

// Defaults of ReadExpertGroups for absent fields.
struct GroupDefaults {
  int64_t groups = 1;
  int64_t kept = 1;
};
// Reads n_group and topk_group, the groups within which experts are chosen. REQUIRES: `moe` has its
// expert counts.
Status ReadExpertGroups(const JsonFields& fields, const GroupDefaults& defaults, MoeSpec& moe);

}  // namespace sluice
