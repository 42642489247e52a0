// Tests plans, refusals, random weights and bit-equal results of our own kernels, on the emulated
// device.
#include "models/device/device_model.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_testing.h"
#include "kernels/cuda/device_kernel_tables.h"
#include "kernels/cuda/nvf4_scales.h"
#include "kernels/linear.h"
#include "kernels/sampling.h"
#include "models/device/device_executor.h"
#include "models/device/device_model_testing.h"
#include "models/device/device_sink.h"
#include "models/device/device_weights.h"
#include "models/program/build_decoder.h"
#include "models/weight_loader.h"
#include "tensor/float4.h"
#include "tensor/float8.h"

namespace sluice {
namespace {

using testing::DataFolder;
using testing::DeviceOptions;
using testing::DeviceRunner;
using ::testing::HasSubstr;
using testing::LogitRows;
using testing::Runner;
using testing::SomeTokens;

// Returns the median over rows of the root mean square difference of log probabilities.
double MiddleDifference(const LogitRows& a, const LogitRows& b) {
  std::vector<double> rms;
  for (size_t row = 0; row < a.size(); ++row) {
    const std::vector<double> x = testing::LogSoftmax(a[row]), y = testing::LogSoftmax(b[row]);
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
    rms.push_back(std::sqrt(sum / static_cast<double>(x.size())));
  }
  std::ranges::sort(rms);
  return rms[rms.size() / 2];
}

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
              HasSubstr("rope on a part of wide heads that is no multiple of 16"));
  EXPECT_EQ(of_attention([](AttentionSpec& attention) { attention.soft_cap = 50; }), "");
  EXPECT_THAT(of_attention([](AttentionSpec& attention) {
                attention.soft_cap = 50;
                attention.head_dim = attention.rotary_dim = 512;
              }),
              HasSubstr("a soft cap of attention scores of heads of more than 256 numbers"));
  EXPECT_THAT(
      of_attention([](AttentionSpec& attention) { attention.qk_norm = QkNorm::kAfterRope; }),
      HasSubstr("norms of heads with weights behind rope"));
  EXPECT_THAT(
      of_attention([](AttentionSpec& attention) { attention.qk_norm = QkNorm::kLayerBeforeRope; }),
      HasSubstr("layer norms of heads"));
  EXPECT_THAT(of_attention([](AttentionSpec& attention) { attention.qkv_limit = 8; }),
              HasSubstr("limits of q, k and v"));
  EXPECT_THAT(of_attention([](AttentionSpec& attention) { attention.narrow_value_dim = 16; }),
              HasSubstr("values of another width than keys"));
  EXPECT_THAT(of_attention([](AttentionSpec& attention) { attention.output_norm = "norm"; }),
              HasSubstr("norms within sublayers"));
  EXPECT_THAT(of_attention([](AttentionSpec& attention) {
                attention.temperature_tuning = {.floor_scale = 8, .power = 0.5};
              }),
              HasSubstr("a power of the position"));
  EXPECT_THAT(refusal([](DecoderSpec& spec) { spec.positions.module = "positions"; }),
              HasSubstr("learnt embeddings of positions"));
  EXPECT_THAT(refusal([](DecoderSpec& spec) { spec.final_norm_eps_factor = 2; }),
              HasSubstr("norms with epsilons of their own"));
  EXPECT_THAT(refusal([](DecoderSpec& spec) { spec.norm.kind = NormSpec::Kind::kLayer; }),
              HasSubstr("layer norms"));
  EXPECT_THAT(refusal([](DecoderSpec& spec) { spec.head_bias = true; }),
              HasSubstr("a bias of the language model's head"));
  EXPECT_THAT(refusal([](DecoderSpec& spec) {
                spec.placeholders = {7, -1};
              }),
              HasSubstr("tokens that stand for parts of images"));
  const auto of_layer = [&](const std::function<void(LayerSpec&)>& change) {
    return refusal([&](DecoderSpec& spec) { change(spec.layers.back()); });
  };
  EXPECT_THAT(of_layer([](LayerSpec& layer) { layer.is_parallel = true; }),
              HasSubstr("attention and MLP side by side"));
  EXPECT_THAT(of_layer([](LayerSpec& layer) { layer.mlp.gate_projection = ""; }),
              HasSubstr("an MLP without a gate"));
  EXPECT_THAT(of_layer([](LayerSpec& layer) { layer.mlp.limit = 7; }),
              HasSubstr("limits of what an MLP multiplies"));
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
      HasSubstr("a choice of experts by sparsemixer"));
  EXPECT_THAT(of_experts([](LayerSpec& layer) { layer.moe->num_groups = 33; }),
              HasSubstr("a choice of experts in more than 32 groups"));
  EXPECT_THAT(of_experts([](LayerSpec& layer) { layer.moe->soft_cap = 2; }),
              HasSubstr("a soft cap of the router's logits"));
  EXPECT_THAT(of_experts([](LayerSpec& layer) {
                MoeSpec::Latent latent;
                latent.width = 8;
                layer.moe->latent = latent;
                layer.mlp.output_gate = "gate";
              }),
              HasSubstr("experts that read a vector made of the rows beside an MLP with a gate"));
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
              HasSubstr("an indexer's heads of more than 256 numbers"));
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
  // The other layers' heads of 32 elements use cache blocks with room for heads of 40.
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

// Runs a kernel that writes `more` elements past the end of its workspace array, into the next one.
TEST(DeviceModelDeathTest, FindsAKernelThatLeavesItsArray) {
  const auto config = LoadModelConfig(DataFolder("llama-bf16"));
  ASSERT_TRUE(config);
  const ModelOptions options = DeviceOptions();
  const auto run = [&](int64_t more) {
    EmulatedDevice device(testing::kArraysApart);
    DecoderWeights weights;
    ListParameters(config->spec, weights);
    const program::DeviceTarget target;
    const program::Program program = program::BuildDecoder(
        {.spec = config->spec, .options = options, .device = &target, .weights = weights});
    const auto plan = DevicePlan::For(program, /*keeps_apart=*/true);
    auto pool = DevicePool::Allocate(device, plan.total_bytes, "a model");
    ASSERT_TRUE(pool);
    const auto memory = pool->Take(plan.total_bytes, "the workspace", plan.gaps);
    ASSERT_TRUE(memory);
    const auto offset_of = [&](const char* name) {
      return plan.offsets[static_cast<size_t>(program::FindBuffer(program, name))];
    };
    auto* const residual =
        reinterpret_cast<float*>(static_cast<std::byte*>(*memory) + offset_of("residual"));
    const int64_t count = options.max_rows * config->spec.hidden_size;
    EXPECT_GE(offset_of("delta") - offset_of("residual"), count * 4 + DevicePool::kAlignment);
    auto stream = device.CreateStream();
    ASSERT_TRUE(stream);
    device::KernelsOf(DeviceKind::kEmulated)
        .cap_logits((*stream)->handle(), {.x = residual, .count = count + more, .cap = 1});
    EXPECT_TRUE((*stream)->Synchronize());
  };
  run(0);
  EXPECT_DEATH(run(1), "behind array 0 of the workspace was written|use-after-poison");
}

// Compares every family and format on both backends, each with its own weights. Uses the median of
// all rows: with experts, single rows may choose another expert. Measured: at most 0.02.
class DeviceAgainstCpuTest : public ::testing::TestWithParam<const char*> {};

TEST_P(DeviceAgainstCpuTest, HeavyLogitsAgree) {
  ModelOptions options = DeviceOptions();
  options.activation_format = ModelOptions::ActivationRounding::kBf16;
  const std::vector<int32_t> tokens = SomeTokens(40, 2);
  const auto folder = DataFolder(GetParam());
  DeviceRunner device(folder, options, testing::kArraysShared);
  const double difference = MiddleDifference(device.runner().RunAlone(tokens, 40),
                                             Runner(folder, options, 2).RunAlone(tokens, 40));
  RecordProperty("difference", fmt::format("{:.4f}", difference));
  EXPECT_LE(difference, 0.03);
}

std::string CheckpointName(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoints, DeviceAgainstCpuTest,
    ::testing::Values("llama-bf16", "llama-tied-bf16-sharded", "qwen3-bf16", "tiny-mistral-window",
                      "tiny-qwen2-window", "tiny-llama4-mixed", "tiny-qwen3-moe-mixed",
                      "tiny-gemma4-experts", "tiny-gpt-oss", "tiny-gpt-oss-mxfp4", "tiny-gemma2",
                      "qwen3-modelopt-fp8", "qwen3-llmc-fp8-block", "qwen3-llmc-int8-w8a8",
                      "qwen3-moe-llmc-nvfp4", "qwen3-moe-quark-mxfp4", "llama4-quark-fp8",
                      "llama4-modelopt-nvfp4", "tiny-qwen3-w4a16", "tiny-qwen3-w4a16-gptq",
                      "tiny-qwen3-w4a16-actorder", "tiny-qwen3-moe-w4a16", "tiny-qwen3-awq",
                      "tiny-qwen3-gptq", "tiny-qwen3-moe-gptq"),
    CheckpointName);

struct PromiseCase {
  const char* name;
  ElementType kv_type = ElementType::kBF16;
  ModelOptions::ActivationRounding rounding = ModelOptions::ActivationRounding::kAuto;
  ModelOptions::LoadFormat load_format = ModelOptions::LoadFormat::kAuto;
};

class DevicePromiseTest : public ::testing::TestWithParam<PromiseCase> {};

// On an emulated device all products use our own kernels, so results of a row depend only on its
// own sequence.
TEST_P(DevicePromiseTest, HeavyCutsAndCompanionsDoNotMatter) {
  ModelOptions options = DeviceOptions(GetParam().kv_type);
  options.activation_format = GetParam().rounding;
  DeviceRunner device(DataFolder(GetParam().name), options);
  Runner& runner = device.runner();
  const std::vector<int32_t> tokens = SomeTokens(60, 5), others = SomeTokens(35, 6);
  const LogitRows expected = runner.RunAlone(tokens, tokens.size());
  EXPECT_TRUE(runner.RunAlone(tokens, 17) == expected);
  for (int sequence = 0; sequence < 3; ++sequence) runner.Forget(sequence);
  const auto first = tokens.begin(), middle = first + 33;
  LogitRows got = runner.RunStep({{1, others}, {0, {first, middle}}, {2, {7}}})[1];
  for (auto token = middle; token < middle + 2; ++token) {
    LogitRows next = runner.RunStep({{0, {*token}}, {1, {3}}})[0];
    std::move(next.begin(), next.end(), std::back_inserter(got));
  }
  LogitRows rest = runner.RunStep({{0, {middle + 2, tokens.end()}}, {2, others}})[0];
  std::move(rest.begin(), rest.end(), std::back_inserter(got));
  EXPECT_TRUE(got == expected);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, DevicePromiseTest,
                         ::testing::Values(PromiseCase{"llama-bf16", ElementType::kBF16},
                                           PromiseCase{"tiny-mistral-window", ElementType::kBF16},
                                           PromiseCase{"tiny-qwen2-window", ElementType::kF8E4M3},
                                           PromiseCase{"tiny-gemma4-shared", ElementType::kBF16},
                                           PromiseCase{"tiny-gemma4-experts", ElementType::kF8E4M3},
                                           PromiseCase{"tiny-gpt-oss-mxfp4", ElementType::kF8E4M3},
                                           PromiseCase{"tiny-gemma2", ElementType::kF8E4M3},
                                           PromiseCase{"qwen3-modelopt-fp8", ElementType::kF8E4M3},
                                           PromiseCase{"qwen3-llmc-fp8-block", ElementType::kBF16},
                                           PromiseCase{"tiny-qwen3-gptq", ElementType::kBF16},
                                           PromiseCase{"tiny-qwen3-moe-w4a16", ElementType::kBF16},
                                           PromiseCase{
                                               "qwen3-moe-llmc-nvfp4", ElementType::kBF16,
                                               ModelOptions::ActivationRounding::kCheckpoint},
                                           PromiseCase{"llama4-quark-fp8", ElementType::kF8E4M3}),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(DeviceModelTest, WeightsRoundedWhileLoadingAreThoseOfTheCpu) {
  for (const char* word : {"fp8", "fp8_per_block", "mxfp4"}) {
    const LoadQuantization quantization{word, ""};
    ModelOptions options = DeviceOptions();
    options.activation_format = ModelOptions::ActivationRounding::kBf16;
    const std::vector<int32_t> tokens = SomeTokens(20, 3);
    const auto folder = DataFolder("llama-bf16");
    const auto config = LoadModelConfig(folder, {}, quantization);
    ASSERT_TRUE(config) << config.error().message;
    const LogitRows cpu = Runner(folder, *config, options, 2).RunAlone(tokens, 20);
    const LogitRows plain = Runner(folder, options, 2).RunAlone(tokens, 20);
    DeviceRunner device(folder, options, {}, quantization);
    const LogitRows found = device.runner().RunAlone(tokens, 20);
    EXPECT_LT(MiddleDifference(found, cpu), 0.02) << word;
    EXPECT_GT(MiddleDifference(found, plain), 2 * MiddleDifference(found, cpu)) << word;
  }
}

TEST(DeviceModelTest, TheWantedRowsAreTheSameAlone) {
  DeviceRunner device(DataFolder("qwen3-bf16"), DeviceOptions());
  Runner& runner = device.runner();
  const std::vector<int32_t> tokens = SomeTokens(30, 4);
  const LogitRows expected = runner.RunAlone(tokens, tokens.size());
  const std::vector<int32_t> table = runner.BlockTable(1);
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<kernels::AttentionSlice> slices = {
      {0, static_cast<int32_t>(tokens.size()), 0, table.data()}};
  for (const std::vector<int32_t>& rows : {std::vector<int32_t>{29}, {3, 4, 20}, {}}) {
    const size_t vocabulary = expected[0].size();
    std::vector<float> logits(rows.size() * vocabulary, -1);
    runner.model().PrepareLogits(logits);
    runner.model().Forward(runner.pool(), {tokens, positions, slices, rows}, runner.cache(),
                           logits.data());
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto begin = logits.begin() + static_cast<ptrdiff_t>(i * vocabulary);
      EXPECT_TRUE(std::equal(begin, begin + static_cast<ptrdiff_t>(vocabulary),
                             expected[static_cast<size_t>(rows[i])].begin()))
          << rows[i];
    }
    runner.model().PrepareLogits({});
  }
}

// Hidden states and scores of a model with an untied head and of one with a tied head.
TEST(DeviceModelTest, HiddenStatesAndScoresAreNearTheCpus) {
  HeadSpec none, scores;
  none.kind = HeadSpec::Kind::kNone;
  scores.kind = HeadSpec::Kind::kScores;
  scores.num_scores = 2;
  scores.tokens = {3, 77};
  for (const char* name : {"qwen3-bf16", "llama-tied-bf16-sharded", "qwen3-llmc-fp8-block"}) {
    for (const HeadSpec& head : {none, scores}) {
      auto config = LoadModelConfig(DataFolder(name));
      ASSERT_TRUE(config);
      config->spec.head = head;
      const int64_t width = config->spec.ResultSize();
      Runner cpu(DataFolder(name), *config, DeviceOptions(), 1);
      const std::vector<float> expected = cpu.ResultsOfRows(SomeTokens(40, 5), width);
      DeviceRunner device(DataFolder(name), DeviceOptions(), {}, {}, head);
      EXPECT_FALSE(device.runner().model().draws_tokens());
      const std::vector<float> got = device.runner().ResultsOfRows(SomeTokens(40, 5), width);
      ASSERT_EQ(got.size(), expected.size());
      double dot = 0, of_got = 0, of_expected = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        dot += double{got[i]} * expected[i];
        of_got += double{got[i]} * got[i];
        of_expected += double{expected[i]} * expected[i];
      }
      EXPECT_GT(dot / std::sqrt(of_got * of_expected), 0.999) << name << ", " << width;
      EXPECT_NEAR(std::sqrt(of_got / of_expected), 1, 0.02) << name << ", " << width;
      EXPECT_EQ(device.runner().ResultsOfRows(SomeTokens(40, 5), width), got) << "a second time";
    }
  }
}

// Results have the same bits whether copies and kernels run immediately or only when a caller
// waits, and whether or not arrays with disjoint lifetimes share memory.
TEST(DeviceModelTest, WhenAndWhereTheDeviceWorksDoesNotShow) {
  for (const char* name : {"tiny-qwen2-window", "qwen3-moe-llmc-nvfp4"}) {
    DeviceRunner late(DataFolder(name), DeviceOptions(), testing::kArraysApart);
    DeviceRunner early(DataFolder(name), DeviceOptions(), {.runs_at_once = true});
    for (const size_t count : {20, 5, 33}) {
      const std::vector<int32_t> tokens = SomeTokens(count, count);
      EXPECT_TRUE(late.runner().RunAlone(tokens, 8) == early.runner().RunAlone(tokens, 8));
    }
  }
}

// Mixes rows whose tokens the device draws with rows whose logits are wanted.
TEST(DeviceModelTest, DrawnRowsBringTheirTokensAndTheOthersTheirLogits) {
  DeviceRunner device(DataFolder("qwen3-bf16"), DeviceOptions());
  Runner& runner = device.runner();
  ASSERT_TRUE(runner.model().draws_tokens());
  const std::vector<int32_t> tokens = SomeTokens(30, 4);
  const LogitRows expected = runner.RunAlone(tokens, tokens.size());
  const std::vector<int32_t> table = runner.BlockTable(1), rows = {3, 4, 9, 20, 29};
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<kernels::AttentionSlice> slices = {
      {0, static_cast<int32_t>(tokens.size()), 0, table.data()}};
  std::vector<TokenDraw> draws(rows.size());
  for (const size_t drawn : {1, 2, 4}) {
    draws[drawn].is_wanted = true;
    draws[drawn].settings.top_p = 1;  // other settings are 0: draws the most likely token
  }
  const size_t vocabulary = expected[0].size();
  std::vector<float> logits(rows.size() * vocabulary, -1);
  runner.model().Forward(runner.pool(), {tokens, positions, slices, rows, 1, draws}, runner.cache(),
                         logits.data());
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<float>& row = expected[static_cast<size_t>(rows[i])];
    const auto begin = logits.begin() + static_cast<ptrdiff_t>(i * vocabulary);
    if (draws[i].is_wanted) {
      EXPECT_EQ(draws[i].token, kernels::ArgMax(row)) << i;
      EXPECT_EQ(draws[i].error, kernels::DrawError::kNone);
      EXPECT_EQ(*begin, -1) << "not copied";
    } else {
      EXPECT_TRUE(std::equal(row.begin(), row.end(), begin)) << i;
    }
  }
}

// Masks, bias lists, counts and requests for logprobs reach the device, and results come back. Some
// rows have one of them; one row has none.
TEST(DeviceModelTest, DrawsWithMasksListsAndLogprobs) {
  DeviceRunner device(DataFolder("qwen3-bf16"), DeviceOptions());
  Runner& runner = device.runner();
  const DrawLimits limits = runner.model().draw_limits();
  const std::vector<int32_t> tokens = SomeTokens(30, 4);
  const LogitRows all = runner.RunAlone(tokens, tokens.size());
  const auto vocabulary = static_cast<int64_t>(all[0].size());
  ASSERT_GE(limits.words, 4 * 96 + vocabulary / 16);
  ASSERT_EQ(limits.top, kernels::kMostTopLogits);
  const std::vector<int32_t> table = runner.BlockTable(1), rows = {3, 4, 9, 20, 29};
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<kernels::AttentionSlice> slices = {
      {0, static_cast<int32_t>(tokens.size()), 0, table.data()}};
  // Words: a mask of the upper half of the vocabulary; the same without its last word; a bias and a
  // count.
  const auto mask_words = static_cast<size_t>((vocabulary + 31) / 32);
  std::vector<uint32_t> words(2 * mask_words, 0);
  for (size_t i = mask_words / 2; i < mask_words; ++i) words[i] = ~uint32_t{0};
  std::copy_n(words.begin(), mask_words - 1, words.begin() + static_cast<int64_t>(mask_words));
  const auto lists = static_cast<int32_t>(words.size());
  words.insert(words.end(), {7, std::bit_cast<uint32_t>(50.0f), 7, 2});
  std::vector<TokenDraw> draws(rows.size());
  std::vector<kernels::TopLogit> tops(3 * rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    draws[i].is_wanted = i != 1;
    draws[i].settings.top_p = 1;  // other settings are 0: draws the most likely token
    draws[i].top = std::span(tops).subspan(3 * i, 3);
  }
  kernels::DrawExtras& masked = draws[0].extras;
  masked.mask = 0;
  masked.draw_mask = static_cast<int32_t>(mask_words);
  masked.is_changed = 1;
  masked.logprobs = kernels::LogprobsOf::kRaw;
  masked.num_top = 3;
  kernels::DrawExtras& biased = draws[2].extras;
  biased.biases = lists;
  biased.counts = lists + 2;
  biased.num_biases = biased.num_counts = 1;
  biased.frequency = 1;
  biased.presence = 2;
  biased.is_changed = 1;
  biased.logprobs = kernels::LogprobsOf::kDrawn;
  biased.num_top = 1;
  draws[4].extras.logprobs = kernels::LogprobsOf::kRaw;
  std::vector<float> logits(rows.size() * static_cast<size_t>(vocabulary), -1);
  runner.model().Forward(runner.pool(), {tokens, positions, slices, rows, 1, draws, words},
                         runner.cache(), logits.data());
  const auto row = [&](size_t i) { return all[static_cast<size_t>(rows[i])]; };
  const auto best = [](std::span<const float> part) { return kernels::ArgMax(part); };

  const std::vector<float> first = row(0);
  const auto half = static_cast<int32_t>(mask_words / 2 * 32);
  const auto upper = std::span(first).subspan(static_cast<size_t>(half));
  EXPECT_EQ(draws[0].token, half + best(upper.first(upper.size() - 32)));
  std::vector<std::pair<int32_t, float>> top;
  kernels::TopK(upper, 3, top);
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(tops[k].token, half + top[k].first);
    EXPECT_EQ(tops[k].logit, top[k].second);
  }
  EXPECT_EQ(draws[0].logprobs.largest, top[0].second);
  EXPECT_EQ(draws[0].logprobs.chosen, first[static_cast<size_t>(draws[0].token)]);

  EXPECT_EQ(draws[1].token >= 0, true) << "a token that nobody takes";
  EXPECT_TRUE(std::ranges::equal(
      row(1), std::span(logits).subspan(static_cast<size_t>(vocabulary), first.size())));

  EXPECT_EQ(draws[2].token, 7);
  EXPECT_EQ(draws[2].logprobs.chosen, row(2)[7] + 50 - 2 - 2);
  EXPECT_EQ(draws[2].logprobs.rank, 1);
  EXPECT_EQ(tops[6].token, 7);
  EXPECT_EQ(tops[7].token, 0) << "not asked for";

  EXPECT_EQ(draws[3].token, best(row(3)));
  EXPECT_EQ(draws[4].token, best(row(4)));
  const kernels::LogSumExp sum = kernels::ComputeLogSumExp(row(4));
  EXPECT_EQ(draws[4].logprobs.largest, sum.largest);
  EXPECT_NEAR(std::log(draws[4].logprobs.sum), sum.log_sum, 1e-6);
  EXPECT_EQ(logits[0], -1) << "not copied";
}

// Three sequences decode before the host knows the drawn tokens: each step takes its tokens from
// the draws of the step before, each time in another order. The emulated device runs only when a
// caller waits for it.
TEST(DeviceModelTest, AStepTakesTheTokensThatTheOneInFlightDraws) {
  constexpr int kSequences = 3, kSteps = 6;
  DeviceRunner device(DataFolder("qwen3-bf16"), DeviceOptions());
  Runner& runner = device.runner();
  Model& model = runner.model();
  ASSERT_TRUE(model.takes_drawn_tokens());
  ASSERT_EQ(model.steps_in_flight(), 2);
  std::vector<std::vector<int32_t>> expected, prompts, tables;
  for (int s = 0; s < kSequences; ++s) {
    prompts.push_back(SomeTokens(5 + static_cast<size_t>(s), static_cast<uint64_t>(s) + 1));
    std::vector<int32_t> tokens = prompts.back();
    for (int i = 0; i <= kSteps; ++i)
      tokens.push_back(kernels::ArgMax(runner.RunAlone(tokens, tokens.size()).back()));
    expected.emplace_back(tokens.begin() + static_cast<ptrdiff_t>(prompts.back().size()),
                          tokens.end());
    tables.push_back(runner.BlockTable(s));
  }
  struct Step {
    std::vector<int> order;  // sequence of each row
    std::vector<TokenDraw> draws;
    std::vector<float> logits;
  };
  std::vector<Step> steps(kSteps + 1);
  const auto finish = [&](size_t index) {
    Step& step = steps[index];
    for (const TokenDraw& draw : step.draws) EXPECT_EQ(draw.token, -1) << "known too early";
    model.Finish(runner.pool());
    for (size_t i = 0; i < step.order.size(); ++i)
      EXPECT_EQ(step.draws[i].token, expected[static_cast<size_t>(step.order[i])][index]) << index;
  };
  for (size_t index = 0; index < steps.size(); ++index) {
    Step& step = steps[index];
    step.order = index % 3 == 2 ? std::vector<int>{2, 0, 1} : std::vector<int>{0, 1, 2};
    std::vector<int32_t> tokens, positions, rows;
    std::vector<kernels::AttentionSlice> slices;
    for (const int s : step.order) {
      const auto sequence = static_cast<size_t>(s);
      const auto prompt = static_cast<int32_t>(prompts[sequence].size());
      const int32_t context = index == 0 ? 0 : prompt + static_cast<int32_t>(index) - 1;
      const int32_t count = index == 0 ? prompt : 1;
      slices.push_back({std::ssize(tokens), count, context, tables[sequence].data()});
      for (int32_t k = 0; k < count; ++k) positions.push_back(context + k);
      if (index == 0) {
        tokens.insert(tokens.end(), prompts[sequence].begin(), prompts[sequence].end());
      } else {
        const std::vector<int>& before = steps[index - 1].order;
        const auto draw = std::find(before.begin(), before.end(), s) - before.begin();
        tokens.push_back(static_cast<int32_t>(-1 - draw));
      }
      rows.push_back(static_cast<int32_t>(tokens.size()) - 1);
      step.draws.emplace_back().is_wanted = true;
      step.draws.back().settings.top_p = 1;  // other settings are 0: draws the most likely token
    }
    step.logits.resize(rows.size() * static_cast<size_t>(model.config().vocab_size));
    model.Begin(runner.pool(), {tokens, positions, slices, rows, 1, step.draws}, runner.cache(),
                step.logits.data());
    if (index > 0) finish(index - 1);
  }
  finish(steps.size() - 1);
}

// Layers that attend only within a chunk have separate blocks and block tables.
TEST(DeviceModelTest, GroupsOfTheCacheGiveTheSameLogits) {
  const char* const name = "tiny-llama4-mixed";
  const ModelOptions options = DeviceOptions();
  DeviceRunner device(DataFolder(name), options);
  Runner& runner = device.runner();
  const std::vector<int32_t> tokens = SomeTokens(50, 8);
  const LogitRows expected = runner.RunAlone(tokens, tokens.size());
  const KvGroups& groups = device.memory().kv_groups;
  ASSERT_GT(groups.num_groups(), 1);
  const int64_t per_sequence = Runner::BlocksPerSequence(options);
  const auto config = LoadModelConfig(DataFolder(name));
  KvCache cache = KvCache::Wrap(KvLayoutOf(config->spec, options), groups,
                                per_sequence * groups.num_groups(), device.kv_memory());
  std::vector<std::vector<int32_t>> tables(static_cast<size_t>(groups.num_groups()));
  for (int64_t block = per_sequence * groups.num_groups() - 1; block >= 0; --block)
    tables[static_cast<size_t>(block % groups.num_groups())].push_back(static_cast<int32_t>(block));
  const size_t vocabulary = expected[0].size();
  int32_t context = 0;
  for (const int32_t count : {33, 1, 16}) {
    std::vector<int32_t> positions(static_cast<size_t>(count)), rows(positions.size());
    std::iota(positions.begin(), positions.end(), context);
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<kernels::AttentionSlice> slices;
    for (std::vector<int32_t>& table : tables) {
      slices.push_back({0, count, context, table.data()});
    }
    std::vector<float> logits(rows.size() * vocabulary);
    const auto mine = std::span(tokens).subspan(static_cast<size_t>(context), rows.size());
    runner.model().Forward(runner.pool(), {mine, positions, slices, rows, groups.num_groups()},
                           cache, logits.data());
    for (size_t row = 0; row < rows.size(); ++row) {
      EXPECT_TRUE(std::equal(expected[static_cast<size_t>(context) + row].begin(),
                             expected[static_cast<size_t>(context) + row].end(),
                             logits.begin() + static_cast<ptrdiff_t>(row * vocabulary)))
          << context << " + " << row;
    }
    context += count;
  }
}

// Contexts are longer than one block of threads processes, so sequences of one token are split.
TEST(DeviceModelTest, HeavyLongSequencesGiveTheSameLogitsTokenByToken) {
  ModelOptions options = DeviceOptions();
  options.max_rows = options.max_logit_rows = options.max_context = 640;
  options.max_slices = 1;
  DeviceRunner device(DataFolder("tiny-qwen3-bias"), options);
  const std::vector<int32_t> tokens = SomeTokens(600, 9);
  const LogitRows expected = device.runner().RunAlone(tokens, tokens.size());
  const size_t first = 592;
  device.runner().RunAlone({tokens.begin(), tokens.begin() + first}, first);
  for (size_t i = first; i < tokens.size(); ++i)
    EXPECT_TRUE(device.runner().RunStep({{0, {tokens[i]}}})[0][0] == expected[i]) << i;
}

// The device's results with rounded inputs are nearer to the CPU's with rounded inputs than the
// CPU's without rounding are. Random weights have a single input scale for all experts, so experts'
// inputs are also rounded.
class DeviceRoundedInputsTest : public ::testing::TestWithParam<PromiseCase> {};

TEST_P(DeviceRoundedInputsTest, HeavyStayNearTheCpu) {
  ModelOptions options = DeviceOptions();
  const bool is_dummy = GetParam().load_format == ModelOptions::LoadFormat::kDummy;
  options.load_format = GetParam().load_format;
  options.activation_format = ModelOptions::ActivationRounding::kCheckpoint;
  const auto folder = DataFolder(GetParam().name);
  const std::vector<int32_t> tokens = SomeTokens(60, 3);
  DeviceRunner device(folder, options);
  const LogitRows got = device.runner().RunAlone(tokens, tokens.size());
  const auto on_cpu = [&] {
    if (is_dummy) return Runner(*LoadModelConfig(folder), options, 2).RunAlone(tokens, 60);
    return Runner(folder, options, 2).RunAlone(tokens, 60);
  };
  const LogitRows rounded = on_cpu();
  options.activation_format = ModelOptions::ActivationRounding::kBf16;
  const LogitRows plain = on_cpu();
  const double near = MiddleDifference(got, rounded), far = MiddleDifference(plain, rounded);
  RecordProperty("near", fmt::format("{:.4f}", near));
  RecordProperty("far", fmt::format("{:.4f}", far));
  EXPECT_LT(near, far);
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoints, DeviceRoundedInputsTest,
    ::testing::Values(PromiseCase{.name = "llama4-quark-fp8",
                                  .load_format = ModelOptions::LoadFormat::kDummy},
                      PromiseCase{.name = "qwen3-moe-llmc-nvfp4",
                                  .load_format = ModelOptions::LoadFormat::kDummy},
                      PromiseCase{.name = "qwen3-moe-llmc-nvfp4"}),
    [](const auto& info) {
      std::string name = info.param.name;
      if (info.param.load_format == ModelOptions::LoadFormat::kDummy) name += "-random";
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

// Decodes a row of a matrix in emulated device memory, which is host memory.
std::vector<float> DecodeDeviceRow(const device::Weights& w, int64_t row) {
  std::vector<float> values(static_cast<size_t>(w.k));
  const auto* bytes = static_cast<const uint8_t*>(w.codes);
  for (int64_t k = 0; k < w.k; ++k) {
    const int64_t index = row * w.k + k;
    float value = 0;
    switch (w.type) {
      case ElementType::kBF16:
        value = ToFloat(BFloat16{static_cast<const uint16_t*>(w.codes)[index]});
        break;
      case ElementType::kF8E4M3: value = ToFloat(Float8E4M3{bytes[index]}); break;
      case ElementType::kI8: value = static_cast<float>(static_cast<int8_t>(bytes[index])); break;
      default:
        value = Float4ToFloat(k % 2 == 0 ? bytes[index / 2] & 0xF : bytes[index / 2] >> 4);
        break;
    }
    float scale = 1;
    if (w.group_type == device::GroupScales::kBlock) {
      const int64_t groups = (w.k + w.group - 1) / w.group;
      scale = static_cast<const float*>(w.group_scales)[row / w.block_rows * groups + k / w.group];
    } else if (w.group_type != device::GroupScales::kNone) {
      const auto* codes = static_cast<const uint8_t*>(w.group_scales);
      const int64_t groups = w.k / w.group, group = k / w.group;
      if (w.group_type == device::GroupScales::kE4M3) {
        scale = ToFloat(
            Float8E4M3{codes[device::NvF4ScaleRow(row, groups) + device::NvF4ScaleGroup(group)]});
      } else {
        scale = PowerOfTwoToFloat(codes[row * groups + group]);
      }
    }
    values[static_cast<size_t>(k)] =
        value * scale * (w.row_scales == nullptr ? 1.0f : w.row_scales[row]);
  }
  return values;
}

// Loads the checkpoint twice, for the CPU and for a device, and compares all values.
void ExpectSameWeights(const std::filesystem::path& folder, ModelOptions::LoadFormat format) {
  const auto config = LoadModelConfig(folder);
  ASSERT_TRUE(config) << config.error().message;
  DecoderWeights expected;
  const ParameterList list = ListParameters(config->spec, expected);
  ThreadPool threads(2);
  const bool is_dummy = format == ModelOptions::LoadFormat::kDummy;
  const auto checkpoint = Checkpoint::Open(folder);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  ASSERT_TRUE(
      is_dummy
          ? FillDummyParameters(threads, list, 7, *config->scheme, ElementType::kBF16, {})
          : LoadParameters(threads, list, *checkpoint, *config->scheme, ElementType::kBF16, {}));
  ModelOptions options = DeviceOptions();
  options.load_format = format;
  options.dummy_seed = 7;
  EmulatedDevice device;
  const auto memory = PlanDeviceModel(*config, options, device.info());
  ASSERT_TRUE(memory) << memory.error().message;
  const int64_t model_bytes = memory->weight_bytes + memory->workspace_bytes;
  auto pool = DevicePool::Allocate(device, model_bytes, "a model");
  ASSERT_TRUE(pool);
  const auto model = LoadDeviceModel(device, *pool, threads, folder, *config, options);
  ASSERT_TRUE(model) << model.error().message;
  // The weights are the pool's first allocation.
  std::vector<DataFormat> formats;
  for (const MatrixParameter& matrix : list.matrices) formats.push_back(matrix.target->format);
  const auto layout = DeviceWeightLayout::For(config->spec.rope_tables, list, formats);
  ASSERT_TRUE(layout) << layout.error().message;
  EXPECT_EQ(layout->total_bytes(), memory->weight_bytes);
  std::byte* const weights = pool->begin();
  for (size_t i = 0; i < list.matrices.size(); ++i) {
    const MatrixParameter& matrix = list.matrices[i];
    const device::Weights w = layout->matrix(i).At(weights);
    std::vector<float> row(static_cast<size_t>(matrix.cols));
    for (int64_t n = 0; n < matrix.rows(); ++n) {
      kernels::DecodeRow(*matrix.target, n, row.data());
      ASSERT_EQ(DecodeDeviceRow(w, n), row) << matrix.parts.front().name << " row " << n;
    }
  }
  for (size_t i = 0; i < list.vectors.size(); ++i) {
    ASSERT_EQ(std::memcmp(weights + layout->vector(i), list.vectors[i].target->data(),
                          list.vectors[i].target->size() * sizeof(float)),
              0)
        << list.vectors[i].parts.front().name;
  }
}

class DeviceWeightsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(DeviceWeightsTest, StoredOnesHaveTheValuesOfTheCpu) {
  ExpectSameWeights(DataFolder(GetParam()), ModelOptions::LoadFormat::kAuto);
}

TEST_P(DeviceWeightsTest, RandomOnesHaveTheValuesOfTheCpu) {
  ExpectSameWeights(DataFolder(GetParam()), ModelOptions::LoadFormat::kDummy);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, DeviceWeightsTest,
                         ::testing::Values("llama-tied-bf16-sharded", "tiny-qwen2-window",
                                           "tiny-qwen3-moe-mixed", "tiny-llama4-mixed",
                                           "qwen3-modelopt-fp8", "qwen3-llmc-fp8-block",
                                           "qwen3-llmc-int8-w8a8", "qwen3-moe-llmc-nvfp4",
                                           "qwen3-moe-quark-mxfp4", "llama4-quark-fp8",
                                           "llama4-modelopt-nvfp4", "tiny-gpt-oss",
                                           "tiny-gpt-oss-mxfp4"),
                         CheckpointName);

TEST(DeviceSinkTest, KnowsWhichScalesOfRowsAreOneNumberOrOneAPart) {
  int64_t same = 0, in_parts = 0, different = 0;
  for (const char* name : {"qwen3-modelopt-fp8", "qwen3-moe-llmc-nvfp4", "qwen3-llmc-int8-w8a8"}) {
    for (const bool is_dummy : {false, true}) {
      SCOPED_TRACE(name);
      const auto config = LoadModelConfig(DataFolder(name));
      DecoderWeights loaded;
      const ParameterList list = ListParameters(config->spec, loaded);
      ThreadPool threads(2);
      const auto checkpoint = Checkpoint::Open(DataFolder(name));
      ASSERT_TRUE(
          LoadParameters(threads, list, *checkpoint, *config->scheme, ElementType::kBF16, {}));
      std::vector<DataFormat> formats;
      for (const MatrixParameter& matrix : list.matrices) formats.push_back(matrix.target->format);
      auto layout = DeviceWeightLayout::For(config->spec.rope_tables, list, formats);
      ASSERT_TRUE(layout);
      EmulatedDevice device;
      const auto stream = *device.CreateStream();
      Uploader uploader = *Uploader::Create(device);
      const DeviceBuffer buffer = *device.Allocate(layout->total_bytes(), "the weights");
      auto* const memory = buffer.As<std::byte>();
      DeviceSink sink({uploader, threads, device::KernelsOf(DeviceKind::kEmulated), *stream},
                      *layout, memory);
      ASSERT_TRUE(
          is_dummy
              ? FillDummyParameters(sink, list, 7, *config->scheme, ElementType::kBF16, {})
              : LoadParameters(sink, list, *checkpoint, *config->scheme, ElementType::kBF16, {}));
      ASSERT_TRUE(stream->Synchronize());
      ASSERT_TRUE(uploader.Finish());
      const auto parts = sink.scaled_parts();
      ASSERT_EQ(parts.size(), list.matrices.size());
      for (size_t i = 0; i < parts.size(); ++i) {
        const device::Weights w = layout->matrix(i).At(memory);
        const float* const begin = w.row_scales;
        std::vector<device::ScaledPart> expected;
        for (int64_t row = 0; begin != nullptr && row < w.n; ++row) {
          if (row == 0 || begin[row] != begin[row - 1]) expected.push_back({0, begin[row]});
          ++expected.back().rows;
        }
        if (expected.size() > device::kMostScaledParts) expected.clear();
        const std::string& tensor = list.matrices[i].parts.front().name;
        ASSERT_EQ(parts[i].size(), expected.size()) << tensor;
        for (size_t p = 0; p < expected.size(); ++p) {
          EXPECT_EQ(parts[i][p].rows, expected[p].rows) << tensor;
          EXPECT_EQ(parts[i][p].scale, expected[p].scale) << tensor;
        }
        if (begin != nullptr)
          ++(expected.size() == 1 ? same : expected.empty() ? different : in_parts);
      }
      layout->SetScaledParts(parts);
      for (size_t i = 0; i < parts.size(); ++i) {
        const device::Weights w = layout->matrix(i).At(memory);
        EXPECT_EQ(w.same_row_scale, parts[i].size() == 1 ? parts[i].front().scale : 0);
        EXPECT_EQ(w.num_parts, parts[i].size() > 1 ? std::ssize(parts[i]) : 0);
        for (int p = 0; p < w.num_parts; ++p) EXPECT_GT(w.parts[p].rows, 0);
      }
    }
  }
  EXPECT_GT(same, 0);
  EXPECT_GT(in_parts, 0);
  EXPECT_GT(different, 0);
}

// A checkpoint's program and weights on a device.
struct PlacedModel {
  DecoderWeights loaded;
  program::Program program;
  DeviceProgramWeights weights;

  const LayerWeights& layer(size_t index) const { return loaded.layers[index]; }
  DeviceInputs InputsOf(const LinearWeights& linear) const {
    const auto found = std::ranges::find(program.linears, &linear);
    return weights.linears.at(static_cast<size_t>(found - program.linears.begin())).inputs;
  }
  DeviceInputs InputsOf(const ExpertWeights& experts) const {
    const auto found = std::ranges::find(program.experts, &experts);
    return weights.experts.at(static_cast<size_t>(found - program.experts.begin())).first.inputs;
  }
};

// Places a checkpoint's weights for a device with this compute capability.
std::unique_ptr<PlacedModel> Placed(const char* name, ModelOptions::ActivationRounding rounding,
                                    int compute_major) {
  const auto config = LoadModelConfig(DataFolder(name));
  auto placed = std::make_unique<PlacedModel>();
  const ParameterList list = ListParameters(config->spec, placed->loaded);
  ThreadPool threads(1);
  const auto checkpoint = Checkpoint::Open(DataFolder(name));
  EXPECT_TRUE(LoadParameters(threads, list, *checkpoint, *config->scheme, ElementType::kBF16, {}));
  std::vector<DataFormat> formats;
  for (const MatrixParameter& matrix : list.matrices) formats.push_back(matrix.target->format);
  const auto layout = DeviceWeightLayout::For(config->spec.rope_tables, list, formats);
  EXPECT_TRUE(layout);
  ModelOptions options = DeviceOptions();
  options.activation_format = rounding;
  DeviceInfo info;
  info.compute_major = compute_major;
  const program::DeviceTarget target;
  placed->program = program::BuildDecoder(
      {.spec = config->spec, .options = options, .device = &target, .weights = placed->loaded});
  // A dummy address; nothing reads it.
  auto* const base =
      reinterpret_cast<std::byte*>(DevicePool::kAlignment);  // NOLINT(performance-no-int-to-ptr)
  placed->weights =
      PlaceWeights(placed->program, list, *layout, DeviceRounding::For(options, info), base);
  return placed;
}

TEST(DeviceInputsTest, AreRoundedAsTheCheckpointSaysWhereTheDeviceMultipliesE4m3) {
  using Rounding = ModelOptions::ActivationRounding;
  const auto inputs_of_down = [](const char* model, Rounding rounding, int compute_major) {
    const auto placed = Placed(model, rounding, compute_major);
    return placed->InputsOf(placed->layer(0).mlp.down);
  };
  const char* const name = "qwen3-modelopt-fp8";
  for (const auto rounding : {Rounding::kAuto, Rounding::kCheckpoint}) {
    const DeviceInputs inputs = inputs_of_down(name, rounding, 9);
    EXPECT_EQ(inputs.type, ElementType::kF8E4M3);
    EXPECT_EQ(inputs.row_scale, device::RowScale::kStatic);
    EXPECT_GT(inputs.static_scale, 0);
    EXPECT_NE(inputs.static_scale, 1);
  }
  EXPECT_EQ(inputs_of_down(name, Rounding::kBf16, 9), DeviceInputs());
  EXPECT_EQ(inputs_of_down(name, Rounding::kAuto, 8), DeviceInputs());
  // Inputs are not rounded for weights with block scales, nor to formats other than E4M3.
  for (const char* other : {"qwen3-llmc-fp8-block", "qwen3-llmc-int8-w8a8"})
    EXPECT_EQ(inputs_of_down(other, Rounding::kCheckpoint, 9), DeviceInputs());
}

// By default, inputs are rounded only where a library multiplies NVFP4 (compute capability 10.0 and
// later), and not for experts, which use our own kernels.
TEST(DeviceInputsTest, AreRoundedToNvF4WhereThatGainsSpeedOrIsAskedFor) {
  using Rounding = ModelOptions::ActivationRounding;
  const char* const name = "qwen3-moe-llmc-nvfp4";
  const auto inputs_of_qkv = [&](Rounding rounding, int compute_major) {
    const auto placed = Placed(name, rounding, compute_major);
    return placed->InputsOf(placed->layer(0).attention.qkv);
  };
  for (const int major : {10, 12}) {
    const DeviceInputs inputs = inputs_of_qkv(Rounding::kAuto, major);
    EXPECT_EQ(inputs.type, ElementType::kBF16);
    EXPECT_EQ(inputs.row_scale, device::RowScale::kNvF4);
    EXPECT_TRUE(inputs.is_rounded());
    EXPECT_GT(inputs.static_scale, 0);
    EXPECT_NE(inputs.static_scale, 1);
    const auto placed = Placed(name, Rounding::kAuto, major);
    EXPECT_EQ(placed->InputsOf(placed->layer(0).moe.gate_up), DeviceInputs());
  }
  EXPECT_EQ(inputs_of_qkv(Rounding::kAuto, 9), DeviceInputs());
  EXPECT_EQ(inputs_of_qkv(Rounding::kBf16, 10), DeviceInputs());
  EXPECT_TRUE(inputs_of_qkv(Rounding::kCheckpoint, 9).is_rounded());

  ModelOptions options = DeviceOptions();
  options.batch_invariant = true;
  DeviceInfo blackwell;
  blackwell.compute_major = 10;
  EXPECT_FALSE(DeviceRounding::For(options, blackwell).nvf4) << "own kernels gain nothing";
}

TEST(DeviceInputsTest, OfExpertsWithScalesOfTheirOwnStayAsTheyAre) {
  const auto placed = Placed("llama4-quark-fp8", ModelOptions::ActivationRounding::kAuto, 9);
  const LayerWeights& layer = placed->layer(1);
  EXPECT_EQ(placed->InputsOf(layer.mlp.gate_up).type, ElementType::kF8E4M3);
  EXPECT_EQ(placed->InputsOf(layer.moe.gate_up), DeviceInputs());
}

}  // namespace
}  // namespace sluice
