// Tests plans, refusals, random weights and bit-equal results of our own kernels, on the emulated
// device.
#include "models/device/device_model.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_testing.h"
#include "kernels/cuda/device_kernel_tables.h"
#include "models/device/device_executor.h"
#include "models/device/device_model_testing.h"
#include "models/program/build_decoder.h"

namespace sluice {
namespace {

using testing::CheckpointName;
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
      HasSubstr("per-head norms with weights after rope"));
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
              HasSubstr("norms with separate epsilons"));
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

// On an emulated device, all products use our own kernels, so a row's results depend only on its
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

// Contexts are longer than one thread block processes, so sequences of one token are split.
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

}  // namespace
}  // namespace sluice
