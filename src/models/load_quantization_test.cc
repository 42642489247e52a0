// Tests unquantized weights that are rounded during loading.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_testing.h"
#include "kernels/linear.h"
#include "models/matrix_source.h"
#include "models/model_testing.h"
#include "models/parallel_model.h"
#include "models/weight_loader.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using testing::DataFolder;
using ::testing::HasSubstr;
using testing::LogitRows;
using testing::Runner;
using testing::SmallOptions;

const LoadQuantization kAll[] = {{"fp8", ""},   {"fp8_per_block", ""}, {"int8", ""},
                                 {"mxfp4", ""}, {"", "int8"},          {"fp8", "mxfp4"}};

const std::vector<int32_t> kPrompt = {5, 17, 300, 42, 9, 9, 501, 0, 77, 128, 4, 12};

ModelConfig ConfigOf(const char* name, const LoadQuantization& quantization) {
  auto config = LoadModelConfig(DataFolder(name), {}, quantization);
  EXPECT_TRUE(config) << config.error().message;
  return *config;
}

std::string Failure(const char* name, const LoadQuantization& quantization) {
  const auto config = LoadModelConfig(DataFolder(name), {}, quantization);
  return config ? "loaded" : config.error().message;
}

// Returns whether the number of inputs is a multiple of MXFP4's group size of 32; 48 is not.
bool Divides(const char* name, const LoadQuantization& quantization) {
  return quantization.weights != "mxfp4" || std::string_view(name) != "tiny-mixtral";
}

double RmsDifference(const LogitRows& a, const LogitRows& b) {
  double sum = 0, norm = 0;
  for (size_t row = 0; row < a.size(); ++row) {
    for (size_t i = 0; i < a[row].size(); ++i) {
      const double difference = double{a[row][i]} - b[row][i];
      sum += difference * difference;
      norm += double{b[row][i]} * b[row][i];
    }
  }
  return std::sqrt(sum / norm);
}

TEST(LoadQuantizationTest, ThePlanCountsEveryByte) {
  for (const char* name : {"llama-bf16", "llama-tied-bf16-sharded", "tiny-mixtral"}) {
    for (const LoadQuantization& quantization : kAll) {
      SCOPED_TRACE(std::string(name) + " " + quantization.weights + " " + quantization.head);
      if (!Divides(name, quantization)) continue;
      const ModelConfig config = ConfigOf(name, quantization);
      const auto options = SmallOptions(ElementType::kBF16, ElementType::kBF16);
      const auto memory = PlanModel(config, options, 2);
      ASSERT_TRUE(memory) << memory.error().message;
      EXPECT_LT(memory->weight_bytes, PlanModel(ConfigOf(name, {}), options, 2)->weight_bytes);
      ThreadPool pool(2);
      DecoderWeights weights;
      const ParameterList list = ListParameters(config.spec, weights);
      const auto checkpoint = Checkpoint::Open(DataFolder(name));
      ASSERT_TRUE(LoadParameters(pool, list, *checkpoint, *config.scheme, ElementType::kBF16, {}));
      int64_t bytes = 0;
      for (const MatrixParameter& matrix : list.matrices) bytes += matrix.target->bytes();
      for (const VectorParameter& vector : list.vectors)
        bytes += static_cast<int64_t>(vector.target->size() * sizeof(float));
      EXPECT_EQ(memory->weight_bytes, bytes);
    }
  }
}

TEST(LoadQuantizationTest, RoutersEmbeddingsAndTheHeadStayUnlessTheyAreMeant) {
  const ModelConfig config = ConfigOf("tiny-qwen2-moe", {"int8", ""});
  const auto planned = [&](const char* module) {
    return config.scheme->PlannedFormat(module).type;
  };
  EXPECT_EQ(planned("model.layers.0.mlp.experts.1.up_proj"), ElementType::kI8);
  EXPECT_EQ(planned("model.layers.0.mlp.shared_expert.up_proj"), ElementType::kI8);
  for (const char* plain : {"model.layers.0.mlp.gate", "model.layers.0.mlp.shared_expert_gate",
                            "model.embed_tokens", "lm_head"})
    EXPECT_EQ(planned(plain), ElementType::kBF16) << plain;
  EXPECT_EQ(config.scheme->Name(), "BF16, rounded to INT8 while loading");
  EXPECT_EQ(ConfigOf("llama-tied-bf16-sharded", {"", "fp8"})
                .scheme->PlannedFormat("model.embed_tokens")
                .type,
            ElementType::kF8E4M3);
}

// Logits do not depend on chunks, threads or ranks, and are close to the logits of the unrounded
// weights.
TEST(LoadQuantizationTest, TheLogitsAreTheSameForAnyThreadsAndRanks) {
  for (const char* name : {"llama-bf16", "llama-tied-bf16-sharded", "tiny-mixtral"}) {
    auto options = SmallOptions(ElementType::kBF16, ElementType::kBF16);
    options.max_context = 64;
    std::vector<int32_t> tokens = kPrompt;
    for (int32_t& token : tokens) token %= 96;
    const LogitRows plain = Runner(DataFolder(name), options, 1).RunAlone(tokens, 12);
    for (const LoadQuantization& quantization : kAll) {
      SCOPED_TRACE(std::string(name) + " " + quantization.weights + " " + quantization.head);
      if (!Divides(name, quantization)) continue;
      const ModelConfig config = ConfigOf(name, quantization);
      const LogitRows alone = Runner(DataFolder(name), config, options, 1).RunAlone(tokens, 12);
      EXPECT_GT(RmsDifference(alone, plain), 1e-4);
      EXPECT_LT(RmsDifference(alone, plain), quantization.weights == "mxfp4" ? 0.6
                                             : quantization.head == "mxfp4"  ? 0.4
                                                                             : 0.15);
      EXPECT_TRUE(Runner(DataFolder(name), config, options, 3).RunAlone(tokens, 5) == alone);
      ParallelOptions parallel;
      parallel.tensor_size = 3;
      parallel.kv_groups = KvGroups::Uniform(config.num_hidden_layers);
      parallel.num_blocks = Runner::BlocksPerSequence(options) * options.max_slices;
      parallel.threads.assign(3, RankThreads{});
      ThreadPool pool(1);
      auto ranks = LoadParallelModel(pool, DataFolder(name), config, options, parallel);
      ASSERT_TRUE(ranks) << ranks.error().message;
      Runner runner(std::move(ranks->model), std::move(ranks->cache), options, 1);
      EXPECT_TRUE(runner.RunAlone(tokens, 5) == alone);
    }
  }
}

// Returns the results of the first mixer's projections for some rows.
LogitRows ProductsOfMixer(const char* name, const ModelConfig& config) {
  ThreadPool pool(1);
  DecoderWeights weights;
  const ParameterList list = ListParameters(config.spec, weights);
  const auto checkpoint = Checkpoint::Open(DataFolder(name));
  EXPECT_TRUE(LoadParameters(pool, list, *checkpoint, *config.scheme, ElementType::kF32, {}));
  const MixerWeights& mixer = weights.layers[0].mixer;
  LogitRows products;
  for (const kernels::PackedMatrix* matrix : {&mixer.in.matrix, &mixer.output.matrix}) {
    std::vector<float> x(static_cast<size_t>(matrix->cols));
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(7 * i));
    std::vector<float>& y = products.emplace_back(static_cast<size_t>(matrix->rows));
    kernels::Linear(pool, *matrix,
                    {.data = x.data(),
                     .type = ElementType::kF32,
                     .rows = 1,
                     .cols = matrix->cols,
                     .stride = matrix->cols},
                    y.data(), matrix->rows);
  }
  return products;
}

// The projections of layers with states are rounded, except the ones for decays and rates.
TEST(LoadQuantizationTest, MixersAreRounded) {
  for (const char* name :
       {"tiny-qwen3.5", "tiny-qwen3-next", "tiny-lfm2", "tiny-bamba", "tiny-falcon-h1"}) {
    auto options = SmallOptions(ElementType::kBF16, ElementType::kBF16);
    options.max_context = 64;
    std::vector<int32_t> tokens = kPrompt;
    for (int32_t& token : tokens) token %= 96;
    const LogitRows plain = ProductsOfMixer(name, ConfigOf(name, {}));
    for (const LoadQuantization& quantization :
         {LoadQuantization{"fp8", ""}, {"fp8_per_block", ""}, {"int8", ""}}) {
      SCOPED_TRACE(std::string(name) + " " + quantization.weights);
      const ModelConfig config = ConfigOf(name, quantization);
      const LogitRows rounded = ProductsOfMixer(name, config);
      EXPECT_GT(RmsDifference(rounded, plain), 1e-4);
      EXPECT_LT(RmsDifference(rounded, plain), 0.05);
      const LogitRows alone = Runner(DataFolder(name), config, options, 1).RunAlone(tokens, 12);
      EXPECT_TRUE(Runner(DataFolder(name), config, options, 3).RunAlone(tokens, 1) == alone);
    }
  }
  const ModelConfig config = ConfigOf("tiny-qwen3.5", {"fp8", ""});
  const auto planned = [&](const char* module) {
    return config.scheme->PlannedFormat(fmt::format("model.layers.0.linear_attn.{}", module)).type;
  };
  EXPECT_EQ(planned("in_proj_qkv"), ElementType::kF8E4M3);
  EXPECT_EQ(planned("out_proj"), ElementType::kF8E4M3);
  EXPECT_EQ(planned("in_proj_a"), ElementType::kBF16);
}

TEST(LoadQuantizationTest, NumbersThatAreNotFiniteAreRefusedByName) {
  const testing::TemporaryFolder folder;
  std::filesystem::copy(DataFolder("llama-bf16"), folder.path() / "model");
  std::vector<testing::TestTensor> tensors;
  {
    const auto checkpoint = Checkpoint::Open(folder.path() / "model");
    for (const auto& [name, tensor] : checkpoint->tensors()) {
      const auto bytes = tensor.bytes();
      tensors.push_back({std::string(name), std::string(ElementTypeName(tensor.info->type)),
                         tensor.info->shape,
                         std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
      if (name == "model.layers.1.mlp.down_proj.weight") {
        tensors.back().data[7] = '\x7f';
        tensors.back().data[6] = '\xc0';
      }
    }
  }
  testing::WriteFile(folder.path() / "model" / "model.safetensors",
                     testing::MakeSafetensors(tensors));
  const auto config = LoadModelConfig(folder.path() / "model", {}, {"mxfp4", ""});
  ASSERT_TRUE(config);
  ThreadPool pool(2);
  const auto model = LoadModel(pool, folder.path() / "model", *config,
                               SmallOptions(ElementType::kBF16, ElementType::kBF16));
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, AllOf(HasSubstr("model.layers.1.mlp.down_proj.weight"),
                                           HasSubstr("row 0, column 3")));
}

TEST(LoadQuantizationTest, WhatCannotBeRoundedIsRefusedByName) {
  EXPECT_THAT(Failure("llama-bf16", {"gptq", ""}),
              AllOf(HasSubstr("--quantization gptq"), HasSubstr("is not quantized"),
                    HasSubstr("fp8_per_block, int8, mxfp4")));
  EXPECT_THAT(Failure("qwen3-modelopt-fp8", {"int8", ""}),
              AllOf(HasSubstr("--quantization int8"), HasSubstr("ModelOpt FP8")));
  EXPECT_EQ(Failure("qwen3-modelopt-fp8", {"modelopt", "int8"}), "loaded");
  EXPECT_THAT(Failure("llama-bf16", {"", "int3"}), HasSubstr("--head-format"));
  EXPECT_THAT(Failure("tiny-bert", {"fp8", ""}), HasSubstr("supported are decoders"));
  // 40 inputs are not a multiple of 32.
  const ModelConfig config = ConfigOf("tiny-llama-bias", {"mxfp4", ""});
  ThreadPool pool(1);
  const auto model = LoadModel(pool, DataFolder("tiny-llama-bias"), config,
                               SmallOptions(ElementType::kBF16, ElementType::kBF16));
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, HasSubstr("load it as fp8 or int8"));
}

}  // namespace
}  // namespace sluice
