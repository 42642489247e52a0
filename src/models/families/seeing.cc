// Models for text and images whose text part is a separate family, named by text_config.
#include <array>
#include <string_view>

#include "models/registry.h"

namespace sluice {
namespace seeing {
namespace {

constexpr std::array<std::string_view, 6> kLlavaTexts = {"llama", "mistral", "qwen2",
                                                         "qwen3", "phi3",    "granite"};
constexpr std::array<std::string_view, 5> kInternVlTexts = {"qwen2", "qwen3", "qwen3_moe", "llama",
                                                            "gpt_oss"};
constexpr std::array<std::string_view, 1> kAyaTexts = {"cohere2"};
constexpr std::array<std::string_view, 2> kIdeficsTexts = {"llama", "qwen2"};
constexpr std::array<std::string_view, 2> kLfm2Texts = {"lfm2", "lfm2_moe"};

constexpr ConfigDefaults Nested(bool is_tied) {
  return {.tie_word_embeddings = is_tied, .is_nested = true};
}

}  // namespace
}  // namespace seeing

// Source: transformers' LlavaConfig.
const ModelFamily kLlava = {
    .architecture = "LlavaForConditionalGeneration",
    .model_type = "llava",
    .defaults = seeing::Nested(false),
    .read = nullptr,
    .notes = {.models = "LLaVA 1.5 7B and 13B, Pixtral 12B, LLaVA-Interleave",
              .operators = "text like Llama, Mistral, Qwen2, Qwen3, Phi-3 or Granite; images: the "
                           "tower of CLIP, SigLIP or Pixtral, two projections",
              .golden = "tiny-llava-clip, tiny-llava-siglip, tiny-llava-pixtral",
              .error = 1.3e-06},
    .text_types = seeing::kLlavaTexts};
// Source: transformers' LlavaNextConfig.
const ModelFamily kLlavaNext = {
    .architecture = "LlavaNextForConditionalGeneration",
    .model_type = "llava_next",
    .defaults = seeing::Nested(false),
    .read = nullptr,
    .notes = {.models = "LLaVA 1.6 7B to 34B, Granite Vision 2B",
              .operators =
                  "like LlavaForConditionalGeneration; images in tiles, without their padding",
              .golden = "tiny-llava-next, tiny-granite-vision",
              .error = 1e-06},
    .text_types = seeing::kLlavaTexts};
// Source: transformers' InternVLConfig.
const ModelFamily kInternVl = {
    .architecture = "InternVLForConditionalGeneration",
    .model_type = "internvl",
    .defaults = seeing::Nested(true),
    .read = nullptr,
    .notes = {.models = "InternVL3 and 3.5 (-HF)",
              .operators = "text like Qwen2, Qwen3, Qwen3-MoE, Llama or gpt-oss; images: "
                           "InternViT, pixel shuffle, two projections",
              .golden = "tiny-internvl",
              .error = 1.1e-06},
    .text_types = seeing::kInternVlTexts};
// Source: transformers' AyaVisionConfig. The text part's logit_scale applies, as in the text model;
// transformers' class for images omits it.
const ModelFamily kAyaVision = {
    .architecture = "AyaVisionForConditionalGeneration",
    .model_type = "aya_vision",
    .defaults = seeing::Nested(true),
    .read = nullptr,
    .notes = {.models = "Aya Vision 8B and 32B",
              .operators = "text like Cohere 2; images in tiles: SigLIP's layers, pixel shuffle, a "
                           "norm, a gated projection and a second projection",
              .golden = "tiny-aya-vision",
              .error = 1.1e-06},
    .text_types = seeing::kAyaTexts};
// Source: transformers' Idefics3Config.
const ModelFamily kIdefics3 = {
    .architecture = "Idefics3ForConditionalGeneration",
    .model_type = "idefics3",
    .defaults = seeing::Nested(false),
    .read = nullptr,
    .notes = {.models = "Idefics3 8B, Granite-Docling 258M",
              .operators = "text like Llama; images: SigLIP's layers, pixel shuffle, a projection",
              .golden = "tiny-idefics3",
              .error = 1e-06},
    .text_types = seeing::kIdeficsTexts};
// Source: transformers' SmolVLMConfig.
const ModelFamily kSmolVlm = {.architecture = "SmolVLMForConditionalGeneration",
                              .model_type = "smolvlm",
                              .defaults = seeing::Nested(false),
                              .read = nullptr,
                              .notes = {.models = "SmolVLM2 256M, 500M, 2.2B",
                                        .operators = "like Idefics3ForConditionalGeneration",
                                        .golden = "tiny-idefics3",
                                        .error = 1e-06},
                              .text_types = seeing::kIdeficsTexts};
// Source: transformers' Lfm2VlConfig.
const ModelFamily kLfm2Vl = {
    .architecture = "Lfm2VlForConditionalGeneration",
    .model_type = "lfm2_vl",
    .defaults = seeing::Nested(true),
    .read = nullptr,
    .notes = {.models = "LFM2-VL 450M, 1.6B, 3B, LFM2.5-VL",
              .operators = "text like Lfm2 or Lfm2-MoE; images: SigLIP 2's tower for images of any "
                           "size, pixel shuffle, two projections",
              .golden = "tiny-lfm2-vl",
              .error = 2.2e-06},
    .text_types = seeing::kLfm2Texts};

}  // namespace sluice
