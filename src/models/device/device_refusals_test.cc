// Models, options and devices that the device's model refuses, by name.
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_testing.h"
#include "models/device/device_model.h"
#include "models/device/device_model_testing.h"

namespace sluice {
namespace {

using testing::DataFolder;
using testing::DeviceOptions;
using ::testing::HasSubstr;

std::string PlanFailure(const char* name, const ModelOptions& options) {
  const auto config = LoadModelConfig(DataFolder(name));
  EXPECT_TRUE(config);
  const auto memory = PlanDeviceModel(*config, options, EmulatedDevice().info());
  return memory ? "planned" : memory.error().message;
}

TEST(DeviceModelTest, WhatItCannotDoIsRefusedByName) {
  ModelOptions options = DeviceOptions();
  options.compute_type = ElementType::kF32;
  EXPECT_THAT(PlanFailure("llama-bf16", options), HasSubstr("computes in bfloat16"));
  EXPECT_THAT(PlanFailure("llama-bf16", DeviceOptions(ElementType::kF16)),
              HasSubstr("bfloat16 or fp8, not in F16"));
  EXPECT_THAT(PlanFailure("tiny-llama-bias", DeviceOptions()),
              HasSubstr("multiple of 8 inputs; serve this model on the CPU"));
  const testing::TemporaryFolder folder;
  std::ifstream published(DataFolder("tiny-qwen3-moe-gptq") / "config.json");
  std::string config(std::istreambuf_iterator<char>(published), {});
  config.replace(config.find("\"desc_act\": false"), 17, "\"desc_act\": true");
  testing::WriteFile(folder.path() / "config.json", config);
  EXPECT_THAT(PlanFailure(folder.path().string().c_str(), DeviceOptions()),
              HasSubstr("experts whose groups reorder their inputs"));
}

TEST(DeviceModelTest, WhatHasNoKernelIsRefusedByName) {
  const EmulatedDevice device;
  const auto refusal = [&](const std::function<void(DecoderSpec&)>& change) -> std::string {
    auto config = *LoadModelConfig(DataFolder("llama-bf16"));
    change(config.spec);
    const auto memory = PlanDeviceModel(config, DeviceOptions(), device.info());
    if (memory) return "";
    EXPECT_EQ(memory.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(memory.error().message, HasSubstr("serve it with --device cpu"));
    return memory.error().message;
  };
  EXPECT_EQ(refusal([](DecoderSpec&) {}), "");
  const auto of_attention = [&](const std::function<void(AttentionSpec&)>& change) {
    return refusal([&](DecoderSpec& spec) { change(spec.layers.back().attention); });
  };
  EXPECT_EQ(of_attention([](AttentionSpec& attention) {
              attention.head_dim = 512;
              attention.rotary_dim = 48;
            }),
            "");
  EXPECT_THAT(of_attention([](AttentionSpec& attention) {
                attention.head_dim = 512;
                attention.rotary_dim = 24;
              }),
              HasSubstr("partial rope on wide heads whose rotated part is not a multiple of 16"));
  EXPECT_EQ(of_attention([](AttentionSpec& attention) { attention.soft_cap = 50; }), "");
  EXPECT_THAT(of_attention([](AttentionSpec& attention) {
                attention.soft_cap = 50;
                attention.head_dim = attention.rotary_dim = 512;
              }),
              HasSubstr("a soft cap of attention scores of heads of more than 256 numbers"));
  EXPECT_THAT(
      of_attention([](AttentionSpec& attention) { attention.qk_norm = QkNorm::kAfterRope; }),
      HasSubstr("per-head norms with weights after rope"));
  EXPECT_THAT(
      of_attention([](AttentionSpec& attention) { attention.qk_norm = QkNorm::kLayerBeforeRope; }),
      HasSubstr("layer norms of heads"));
  EXPECT_THAT(of_attention([](AttentionSpec& attention) { attention.qkv_limit = 8; }),
              HasSubstr("clamped q, k and v"));
  EXPECT_THAT(of_attention([](AttentionSpec& attention) { attention.narrow_value_dim = 16; }),
              HasSubstr("values whose width differs from the keys'"));
  EXPECT_THAT(of_attention([](AttentionSpec& attention) { attention.output_norm = "norm"; }),
              HasSubstr("norms within sublayers"));
  EXPECT_THAT(of_attention([](AttentionSpec& attention) {
                attention.temperature_tuning = {.floor_scale = 8, .power = 0.5};
              }),
              HasSubstr("a power of the position"));
  EXPECT_THAT(of_attention([](AttentionSpec& attention) { attention.block_indexer.emplace(); }),
              HasSubstr("attention to chosen blocks of positions"));
  EXPECT_THAT(refusal([](DecoderSpec& spec) { spec.positions.module = "positions"; }),
              HasSubstr("learned positions"));
  EXPECT_THAT(refusal([](DecoderSpec& spec) { spec.final_norm_eps_factor = 2; }),
              HasSubstr("norms with separate epsilons"));
  EXPECT_THAT(refusal([](DecoderSpec& spec) { spec.norm.kind = NormSpec::Kind::kLayer; }),
              HasSubstr("layer norms"));
  EXPECT_THAT(refusal([](DecoderSpec& spec) { spec.head_bias = true; }),
              HasSubstr("a bias of the output head"));
  EXPECT_THAT(refusal([](DecoderSpec& spec) {
                spec.placeholders = {7, -1};
              }),
              HasSubstr("placeholder tokens for parts of images"));
  const auto of_layer = [&](const std::function<void(LayerSpec&)>& change) {
    return refusal([&](DecoderSpec& spec) { change(spec.layers.back()); });
  };
  EXPECT_THAT(of_layer([](LayerSpec& layer) { layer.is_parallel = true; }),
              HasSubstr("attention and MLP in parallel"));
  EXPECT_THAT(of_layer([](LayerSpec& layer) { layer.mlp.gain = 1.5F; }), HasSubstr("a gain"));
  EXPECT_THAT(of_layer([](LayerSpec& layer) { layer.mlp.up_offset = 1; }), HasSubstr("an offset"));
  EXPECT_THAT(of_layer([](LayerSpec& layer) { layer.mlp.gate_projection = ""; }),
              HasSubstr("an MLP without a gate"));
  EXPECT_THAT(of_layer([](LayerSpec& layer) { layer.mlp.limit = 7; }),
              HasSubstr("clamped inputs of an MLP's product"));
  EXPECT_EQ(of_layer([](LayerSpec& layer) { layer.mlp.activation = Activation::kRelu2; }), "");
  EXPECT_THAT(of_layer([](LayerSpec& layer) { layer.mlp.activation = Activation::kXielu; }),
              HasSubstr("xIELU"));
  const auto of_experts = [&](const std::function<void(LayerSpec&)>& change) {
    return refusal([&](DecoderSpec& spec) {
      LayerSpec& layer = spec.layers.back();
      MoeSpec moe;
      moe.num_experts = 2;
      moe.top_k = 1;
      moe.intermediate_size = 64;
      layer.moe = moe;
      change(layer);
    });
  };
  EXPECT_THAT(of_experts([](LayerSpec& layer) { layer.moe->has_bias = true; }),
              HasSubstr("biases of experts"));
  EXPECT_THAT(
      of_experts([](LayerSpec& layer) { layer.moe->score = kernels::RouterScore::kSparseMixer; }),
      HasSubstr("expert routing by sparsemixer"));
  EXPECT_THAT(of_experts([](LayerSpec& layer) { layer.moe->num_groups = 33; }),
              HasSubstr("expert routing with more than 32 groups"));
  EXPECT_THAT(of_experts([](LayerSpec& layer) { layer.moe->soft_cap = 2; }),
              HasSubstr("a soft cap of the router's logits"));
  EXPECT_THAT(of_experts([](LayerSpec& layer) {
                MoeSpec::Latent latent;
                latent.width = 8;
                layer.moe->latent = latent;
                layer.mlp.output_gate = "gate";
              }),
              HasSubstr("experts that read projected rows, in parallel with a gated MLP"));
  EXPECT_THAT(of_experts([](LayerSpec& layer) { layer.moe->activation = Activation::kGelu; }),
              HasSubstr("GELU by erf"));
  EXPECT_THAT(
      refusal([](DecoderSpec& spec) { spec.layers.back().mlp.activation = Activation::kGelu; }),
      HasSubstr("GELU by erf"));
}

TEST(DeviceModelTest, IndexersThatNoKernelTakesAreRefused) {
  const EmulatedDevice device;
  const auto refusal = [&](const std::function<void(IndexerSpec&)>& change) -> std::string {
    auto config = *LoadModelConfig(DataFolder("tiny-deepseek-v32-even"));
    for (LayerSpec& layer : config.spec.layers) change(*layer.attention.latent->indexer);
    const auto memory = PlanDeviceModel(config, DeviceOptions(), device.info());
    return memory ? "" : memory.error().message;
  };
  EXPECT_EQ(refusal([](IndexerSpec& /*indexer*/) {}), "");
  EXPECT_THAT(refusal([](IndexerSpec& indexer) { indexer.head_dim = 258; }),
              HasSubstr("indexer heads of more than 256 numbers"));
  EXPECT_THAT(refusal([](IndexerSpec& indexer) { indexer.top_k = INT32_MAX / 8; }),
              HasSubstr("lower --max-num-batched-tokens"));
}

TEST(DeviceModelTest, HeadsThatNoKernelTakesAreRefused) {
  const EmulatedDevice device;
  const auto refusal = [&](int head_dim, int block_size) -> std::string {
    auto config = *LoadModelConfig(DataFolder("tiny-gemma4-shared"));
    for (LayerSpec& layer : config.spec.layers) {
      if (layer.attention.span.sees_all()) layer.attention.head_dim = head_dim;
    }
    config.spec.rope_tables.front().resize(static_cast<size_t>(head_dim) / 2);
    ModelOptions options = DeviceOptions();
    options.block_size = block_size;
    const auto memory = PlanDeviceModel(config, options, device.info());
    return memory ? "" : memory.error().message;
  };
  EXPECT_EQ(refusal(512, 16), "");
  EXPECT_THAT(refusal(320, 16), HasSubstr("head_dim is 320"));
  // The other layers have heads of 32 elements. They use cache blocks with room for heads of 40.
  EXPECT_EQ(refusal(40, 4), "");
  EXPECT_THAT(refusal(40, 3), HasSubstr("use another --block-size"));
}

TEST(DeviceModelTest, ADeviceTooSmallIsNamed) {
  EmulatedDevice device;
  const auto config = LoadModelConfig(DataFolder("llama-bf16"));
  auto pool = DevicePool::Allocate(device, 4096, "a model");
  ASSERT_TRUE(pool);
  ThreadPool threads(1);
  const auto model =
      LoadDeviceModel(device, *pool, threads, DataFolder("llama-bf16"), *config, DeviceOptions());
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(model.error().message, HasSubstr("the weights"));
}

}  // namespace
}  // namespace sluice
