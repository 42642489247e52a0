// Readers of config.json fields that several families share.
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

// Names in layer_types.
constexpr const char* kFullAttention = "full_attention";
constexpr const char* kSlidingAttention = "sliding_attention";
// In mlp_layer_types.
constexpr const char* kDenseMlp = "dense";
constexpr const char* kSparseMlp = "sparse";

// Bounds that keep every product of two dimensions far inside 64 bits; published models are well
// below them.
constexpr int64_t kMaxConfigPositions = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxConfigWidth = int64_t{1} << 20;
constexpr int64_t kMaxConfigLayers = 4096;
constexpr int64_t kMaxConfigExperts = 4096;

// layer_types, one for each layer, of `kinds` only; nullopt where not given.
Result<std::optional<std::vector<std::string>>> ReadLayerTypes(
    const JsonFields& fields, const ModelConfig& config, const std::vector<std::string>& kinds);

// Checks that every layer sees all positions.
Status ReadFullAttention(const JsonFields& fields, const ModelConfig& config);

// Reads a window that all layers have; one that is null or absent is none.
Status ReadWindow(const JsonFields& fields, ModelConfig& config);

// The window of families that have one only where use_sliding_window is true: sliding_window, or
// `absent` where that is not given; nullopt where it is null or no window is asked for.
Result<std::optional<int64_t>> ReadWantedWindow(const JsonFields& fields,
                                                std::optional<int64_t> absent);
constexpr int64_t kDefaultQwenWindow = 4096;

// Reads the windows of layers as Qwen 2 and 3 spell them.
Status ReadSlidingAttention(const JsonFields& fields, ModelConfig& config);

// Which layers rotate q and k, as Llama 4 and SmolLM3 spell it. In no_rope_layers a 1 stands for a
// layer WITH rope.
Result<std::vector<bool>> ReadRopeLayers(const JsonFields& fields, const ModelConfig& config);

// Reads rope_parameters that has a block for each kind of layer, as transformers 5 writes it: that
// of layers that see everything into config.rope, that of layers with a window into `local`. False
// where there are no such blocks, and nothing is read.
Result<bool> ReadRopeBlocks(const JsonFields& fields, double default_local_theta,
                            ModelConfig& config, RopeConfig& local);

// Indices of layers, as a flag for each layer; nullopt where not given.
Result<std::optional<std::vector<bool>>> ReadLayerSet(const JsonFields& fields,
                                                      const ModelConfig& config,
                                                      std::string_view name);

// Which layers have experts, as Qwen's families spell it.
Result<std::vector<bool>> ReadSparseLayers(const JsonFields& fields, const ModelConfig& config);

// Names in layer_types of layers with mixers.
constexpr const char* kLinearAttention = "linear_attention";
constexpr const char* kConvolution = "conv";

// Gives the layers that are true in `mixes` the mixer in place of attention. kUnsupported where
// none is left with attention, which the cache of blocks needs.
Status ReplaceAttention(const std::vector<bool>& mixes, const MixerSpec& mixer,
                        ModelConfig& config);
// kInvalidData for a width of a convolution or a shape of heads that no mixer has; `mixer` but for
// its module and names. The keys name them in messages.
struct MixerKeys {
  const char* width = "linear_conv_kernel_dim";
  const char* heads = "linear_num_value_heads";
  const char* key_heads = "linear_num_key_heads";
};
Status CheckMixer(const JsonFields& fields, const MixerKeys& keys, const MixerSpec& mixer);

// Fields of Gated DeltaNet under Qwen3-Next's names, such as linear_num_key_heads.
struct DeltaDefaults {
  int64_t key_heads = 16, heads = 32, key_dim = 128, head_dim = 128;
};
Result<MixerSpec> ReadDeltaRule(const JsonFields& fields, const DeltaDefaults& defaults,
                                const ModelConfig& config);

// The same as mlp_layer_types spells it: the layers from `first_sparse` on where it is not given.
Result<std::vector<bool>> ReadMlpLayerTypes(const JsonFields& fields, const ModelConfig& config,
                                            int64_t first_sparse);

// What families have in which most layers see a window.
struct WindowDefaults {
  int64_t window = 4096;
  int64_t pattern = 4;  // every such layer sees everything
  const char* pattern_field = "sliding_window_pattern";
};
// Reads layer_types, or which layers see a window by the pattern, and the window of those; true for
// each that does.
Result<std::vector<bool>> ReadWindowLayers(const JsonFields& fields, const WindowDefaults& defaults,
                                           ModelConfig& config);

// Fields of DeepSeek V3's experts, which sigmoids with a bias choose: groups, norm_topk_prob,
// routed_scaling_factor, moe_intermediate_size.
struct RouterDefaults {
  bool normalize = true;
  double scale = 1;
  int64_t width = 0;
};
Status ReadSigmoidRouter(const JsonFields& fields, const RouterDefaults& defaults, MoeSpec& moe);

// The axes of rope's frequencies (DecoderSpec::rope_axes), from mrope_section, the numbers of
// frequencies that turn with time, row and column: in three runs, or interleaved as far as each
// goes. `absent`: the sections where they are not given. REQUIRES: config.rotary_dim is read.
Status ReadRopeAxes(const JsonFields& fields, const std::vector<int64_t>& absent, bool interleaves,
                    ModelConfig& config);

// kUnsupported where `name` is set to anything but null, false and 0.
Status RefuseField(const JsonFields& fields, const char* name, const char* what);

// kUnsupported that names `key` for a width of heads that the attention kernels do not take.
Status CheckHeadWidth(int64_t head_dim, const char* key);

// What ReadExpertCounts takes for fields that are not given; nullopt: they must be.
struct ExpertDefaults {
  std::optional<int64_t> num_experts = {};
  std::optional<int64_t> top_k = {};
  const char* top_k_field = "num_experts_per_tok";
  // Default of moe_intermediate_size; nullopt: the field is not read.
  std::optional<int64_t> intermediate_size = {};
};
// Reads the number of experts, under one of its names, how many of them a token visits, and the
// width of each into `moe`.
Status ReadExpertCounts(const JsonFields& fields, const ExpertDefaults& defaults, MoeSpec& moe);

// What ReadExpertGroups takes for fields that are not given.
struct GroupDefaults {
  int64_t groups = 1;
  int64_t kept = 1;
};
// Reads n_group and topk_group, the groups that experts are chosen in. REQUIRES: `moe` has its
// counts.
Status ReadExpertGroups(const JsonFields& fields, const GroupDefaults& defaults, MoeSpec& moe);

}  // namespace sluice
