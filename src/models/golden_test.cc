// Compares models with transformers in float32 (tests/data/checkpoints/*/golden.json: stored
// weights, unrounded activations), and with golden_fakequant.json, in which inputs of quantized
// layers, keys and values are rounded as the scheme specifies.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "checkpoint/scheme.h"
#include "models/golden_testing.h"

namespace sluice {
namespace {

using testing::DataFolder;
using testing::GoldenCase;
using testing::Runner;
using testing::SmallOptions;
using testing::TestName;

// Compares logits and greedy tokens of every case in the checkpoint's golden file.
void Check(const char* name, const char* golden_file, const ModelOptions& options,
           double tolerance) {
  const std::filesystem::path folder = DataFolder(name);
  Runner runner(folder, options, 2);
  for (const GoldenCase& golden : testing::ReadGolden(folder / golden_file)) {
    const double rms = WorstRms(golden, runner.RunAlone(golden.prompt, 64));
    ::testing::Test::RecordProperty(fmt::format("rms_{}", golden.prompt.size()),
                                    fmt::format("{:.2g}", rms));
    EXPECT_LE(rms, tolerance) << "prompt of " << golden.prompt.size();
    ExpectGreedy(runner, golden, 2 * tolerance);
  }
}

ModelConfig GoldenConfig(const char* name) {
  auto config = LoadModelConfig(DataFolder(name));
  EXPECT_TRUE(config) << (config ? "" : config.error().message);
  return *std::move(config);
}

class Float32ModeTest : public ::testing::TestWithParam<const char*> {};
class DefaultModeTest : public ::testing::TestWithParam<const char*> {};
class Int8Test : public ::testing::TestWithParam<const char*> {};
class CheckpointActivationsTest : public ::testing::TestWithParam<const char*> {};

// Measured: at most 4e-5.
TEST_P(Float32ModeTest, AgreesWithTransformers) {
  Check(GetParam(), "golden.json", SmallOptions(ElementType::kF32, ElementType::kF32), 2e-4);
}

// Measured: at most 0.035, in layers with a width of 32. Models with experts have F16 keys and
// values, as in the engine.
TEST_P(DefaultModeTest, StaysNearTransformers) {
  const ElementType kv_type = GoldenConfig(GetParam()).spec.FirstMoeLayer() != nullptr
                                  ? ElementType::kF16
                                  : ElementType::kBF16;
  Check(GetParam(), "golden.json", SmallOptions(ElementType::kBF16, kv_type), 0.04);
}

// The delta rule corrects the state by values that it reads from the state, which amplifies
// rounding errors. Measured: at most 0.09 in checkpoints with random weights; transformers in BF16:
// 0.18.
TEST(DefaultModeOfDeltaRuleTest, StaysNearTransformers) {
  for (const char* name : {"tiny-qwen3.5", "tiny-olmo-hybrid"})
    Check(name, "golden.json", SmallOptions(ElementType::kBF16, ElementType::kBF16), 0.13);
}

// Gemma 4 does not scale q . k down, so the softmax amplifies BF16's rounding errors. Measured: at
// most 0.13 in the dense checkpoint; transformers in BF16: 0.20.
TEST(DefaultModeOfUnscaledScoresTest, StaysNearTransformers) {
  Check("tiny-gemma4-shared", "golden.json", SmallOptions(ElementType::kBF16, ElementType::kBF16),
        0.15);
}

// INT8 layers have INT8 inputs by default. Measured: at most 0.068.
TEST_P(Int8Test, StaysNearRoundedInputs) {
  Check(GetParam(), "golden_fakequant.json", SmallOptions(ElementType::kBF16, ElementType::kBF16),
        0.1);
}

// All roundings are as in the golden files, and nearly all rows agree to 4e-6. But sums in another
// order differ by about 1e-7 of their size. Adjacent numbers of narrow formats are 1/16 (E4M3) to
// 1/2 (E2M1) apart, and a prompt has about 1e5 roundings. So a few numbers are rounded to the other
// side of a tie. This changes a row of logits by up to 0.06 (measured), and by up to 0.14 if it
// changes the choice of an expert in a later layer.
TEST_P(CheckpointActivationsTest, AgreesWithRoundedInputs) {
  const ModelConfig config = GoldenConfig(GetParam());
  ModelOptions options =
      SmallOptions(ElementType::kF32,
                   config.scheme->WantsFp8KvCache() ? ElementType::kF8E4M3 : ElementType::kF32);
  options.activation_format = ModelOptions::ActivationRounding::kCheckpoint;
  Check(GetParam(), "golden_fakequant.json", options,
        config.spec.FirstMoeLayer() != nullptr ? 0.2 : 0.1);
}

// Overrides of config.json, and the golden file that transformers made with them.
struct ScaledRope {
  const char* golden_file;
  const char* overrides;
};

// Golden logits with a window that the stored configuration does not enable.
class AskedWindowTest : public ::testing::TestWithParam<const char*> {};

TEST_P(AskedWindowTest, AgreesWithTransformers) {
  const std::filesystem::path folder = DataFolder(GetParam());
  const auto config = LoadModelConfig(
      folder, *json::Parse(R"({"use_sliding_window": true, "sliding_window": 20})"));
  ASSERT_TRUE(config) << config.error().message;
  Runner runner(folder, *config, SmallOptions(ElementType::kF32, ElementType::kF32), 2);
  for (const GoldenCase& golden : testing::ReadGolden(folder / "golden_window.json"))
    EXPECT_LE(WorstRms(golden, runner.RunAlone(golden.prompt, 64)), 2e-4);
}

class ScaledRopeTest : public ::testing::TestWithParam<ScaledRope> {};

// The prompts are longer than the original positions. Measured: at most 2e-5.
TEST_P(ScaledRopeTest, AgreesWithTransformers) {
  const std::filesystem::path folder = DataFolder("tiny-llama-bias");
  const auto config = LoadModelConfig(folder, *json::Parse(GetParam().overrides));
  ASSERT_TRUE(config) << config.error().message;
  Runner runner(folder, *config, SmallOptions(ElementType::kF32, ElementType::kF32), 2);
  double plain_rms = 0;
  Runner plain(folder, SmallOptions(ElementType::kF32, ElementType::kF32), 2);
  for (const GoldenCase& golden : testing::ReadGolden(folder / GetParam().golden_file)) {
    EXPECT_LE(WorstRms(golden, runner.RunAlone(golden.prompt, 64)), 2e-4)
        << "prompt of " << golden.prompt.size();
    ExpectGreedy(runner, golden, 4e-4);
    plain_rms = std::max(plain_rms, WorstRms(golden, plain.RunAlone(golden.prompt, 64)));
  }
  EXPECT_GT(plain_rms, 0.01) << "the scaling makes a difference";
}

// The same values as SCALINGS in tools/checkpoints/make_variants.py.
INSTANTIATE_TEST_SUITE_P(
    Kinds, ScaledRopeTest,
    ::testing::Values(ScaledRope{"golden_linear.json",
                                 R"({"rope_scaling": {"rope_type": "linear", "factor": 4.0}})"},
                      ScaledRope{"golden_dynamic.json",
                                 R"({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0},
                       "max_position_embeddings": 24})"},
                      ScaledRope{"golden_yarn.json",
                                 R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                                        "original_max_position_embeddings": 24}})"},
                      ScaledRope{"golden_yarn_all.json",
                                 R"({"rope_theta": 50000.0,
                       "rope_parameters": {"rope_type": "yarn", "factor": 8.0,
                         "original_max_position_embeddings": 48, "beta_fast": 12.0,
                         "beta_slow": 0.5, "mscale": 1.5, "mscale_all_dim": 0.5,
                         "truncate": false}})"}));
// The same values as WINDOWED in tools/checkpoints/make_variants.py.
INSTANTIATE_TEST_SUITE_P(Checkpoints, AskedWindowTest,
                         ::testing::Values("tiny-qwen3-moe-mixed", "tiny-qwen2-moe",
                                           "tiny-smollm3"),
                         TestName);
INSTANTIATE_TEST_SUITE_P(
    Checkpoints, Float32ModeTest,
    ::testing::Values(
        "llama-bf16", "llama-tied-bf16-sharded", "qwen3-bf16", "tiny-llama-bias", "tiny-llama-wide",
        "tiny-qwen3-bias", "tiny-llama4-mixed", "tiny-qwen3-moe-mixed", "tiny-mistral-window",
        "tiny-qwen2-window", "tiny-mtp-mimo", "tiny-gemma3", "tiny-gemma3-cap",
        "tiny-gemma4-shared", "tiny-gemma4-experts", "tiny-mixtral", "tiny-qwen2-moe",
        "tiny-phi3-partial", "tiny-phi3-long", "tiny-olmo2", "tiny-olmo3", "tiny-granite",
        "tiny-granite4", "tiny-smollm3", "tiny-gemma2", "tiny-glm4-moe", "tiny-glm4-moe-odd",
        "tiny-gpt-oss", "tiny-gpt-oss-mxfp4", "tiny-ministral3", "tiny-llama-narrow",
        "tiny-qwen3-narrow", "tiny-granite4-experts", "tiny-glm4-moe-groups", "tiny-deepseek-v3",
        "tiny-deepseek-v2", "tiny-glm4-lite", "tiny-mistral4", "tiny-minicpm3", "tiny-deepseek-v32",
        "tiny-deepseek-v4", "tiny-deepseek-v4-fp8", "tiny-glm-dsa", "llama4-modelopt-nvfp4",
        "llama4-quark-fp8", "qwen3-moe-llmc-nvfp4", "qwen3-moe-quark-mxfp4", "qwen3-llmc-fp8-block",
        "qwen3-llmc-int8-w8a8", "qwen3-modelopt-fp8", "tiny-qwen3-w4a16", "tiny-qwen3-w4a16-gptq",
        "tiny-qwen3-w4a16-actorder", "tiny-qwen3-moe-w4a16", "tiny-qwen3-awq", "tiny-qwen3-gptq",
        "tiny-qwen3-moe-gptq", "tiny-minimax-m2", "tiny-hunyuan", "tiny-hunyuan-moe", "tiny-hy3",
        "tiny-ernie", "tiny-ernie-moe", "tiny-seed-oss", "tiny-exaone4", "tiny-exaone4-full",
        "tiny-exaone-moe", "tiny-afmoe", "tiny-mellum", "tiny-glm", "tiny-glm4", "tiny-granitemoe",
        "tiny-granitemoe-shared", "tiny-olmoe", "tiny-gemma", "tiny-starcoder2", "tiny-cohere",
        "tiny-cohere2", "tiny-cohere-compass", "tiny-phimoe", "tiny-apertus", "tiny-dots1",
        "tiny-internlm3", "tiny-arcee", "tiny-step3p7", "tiny-muse-glimmer", "tiny-jais2",
        "tiny-nemotron", "tiny-helium", "tiny-cwm", "tiny-iquestcoder", "tiny-exaone",
        "tiny-granite-swa", "tiny-granitemoe-swa", "tiny-hyperclovax", "tiny-flex-olmo",
        "tiny-olmo", "tiny-solar-open", "tiny-sarvam-moe", "tiny-vaultgemma", "tiny-gpt-neox",
        "tiny-falcon", "tiny-falcon-old", "tiny-phi", "tiny-stablelm", "tiny-stablelm-parallel",
        "tiny-sarvam-mla", "tiny-youtu", "tiny-flint"),
    TestName);
INSTANTIATE_TEST_SUITE_P(
    Checkpoints, DefaultModeTest,
    ::testing::Values(
        "llama-bf16", "llama-tied-bf16-sharded", "qwen3-bf16", "tiny-llama4-mixed",
        "tiny-qwen3-moe-mixed", "tiny-mixtral", "tiny-qwen2-moe", "tiny-phi3-partial",
        "tiny-phi3-long", "tiny-olmo2", "tiny-olmo3", "tiny-granite", "tiny-granite4",
        "tiny-smollm3", "tiny-gemma2", "tiny-glm4-moe", "tiny-gpt-oss", "tiny-gpt-oss-mxfp4",
        "tiny-gemma4-experts", "tiny-ministral3", "tiny-llama-narrow", "tiny-qwen3-narrow",
        "tiny-granite4-experts", "tiny-glm4-moe-groups", "tiny-deepseek-v3", "tiny-deepseek-v2",
        "tiny-glm4-lite", "tiny-mistral4", "tiny-minicpm3", "tiny-deepseek-v32", "tiny-deepseek-v4",
        "tiny-deepseek-v4-fp8", "tiny-glm-dsa", "llama4-modelopt-nvfp4", "llama4-quark-fp8",
        "qwen3-moe-llmc-nvfp4", "qwen3-moe-quark-mxfp4", "qwen3-llmc-fp8-block",
        "qwen3-modelopt-fp8", "tiny-qwen3-w4a16", "tiny-qwen3-w4a16-gptq",
        "tiny-qwen3-w4a16-actorder", "tiny-qwen3-moe-w4a16", "tiny-qwen3-awq", "tiny-qwen3-gptq",
        "tiny-qwen3-moe-gptq", "tiny-minimax-m2", "tiny-hunyuan", "tiny-hunyuan-moe", "tiny-hy3",
        "tiny-ernie", "tiny-ernie-moe", "tiny-seed-oss", "tiny-exaone4", "tiny-exaone4-full",
        "tiny-exaone-moe", "tiny-afmoe", "tiny-mellum", "tiny-glm", "tiny-glm4", "tiny-granitemoe",
        "tiny-granitemoe-shared", "tiny-olmoe", "tiny-gemma", "tiny-starcoder2", "tiny-cohere",
        "tiny-cohere2", "tiny-phimoe", "tiny-apertus", "tiny-dots1", "tiny-internlm3", "tiny-arcee",
        "tiny-step3p7", "tiny-muse-glimmer", "tiny-jais2", "tiny-nemotron", "tiny-helium",
        "tiny-cwm", "tiny-iquestcoder", "tiny-exaone", "tiny-granite-swa", "tiny-granitemoe-swa",
        "tiny-hyperclovax", "tiny-flex-olmo", "tiny-olmo", "tiny-solar-open", "tiny-sarvam-moe",
        "tiny-vaultgemma", "tiny-gpt-neox", "tiny-falcon", "tiny-falcon-old", "tiny-phi",
        "tiny-stablelm", "tiny-stablelm-parallel", "tiny-sarvam-mla", "tiny-youtu", "tiny-flint"),
    TestName);
INSTANTIATE_TEST_SUITE_P(MistralFormat, Float32ModeTest,
                         ::testing::Values("tiny-mistral-own", "tiny-mistral-large3"), TestName);
INSTANTIATE_TEST_SUITE_P(MistralFormat, DefaultModeTest,
                         ::testing::Values("tiny-mistral-own", "tiny-mistral-large3"), TestName);
INSTANTIATE_TEST_SUITE_P(Recurrent, Float32ModeTest,
                         ::testing::Values("tiny-lfm2", "tiny-lfm2-moe", "tiny-lfm3",
                                           "tiny-qwen3-next", "tiny-qwen3.5", "tiny-olmo-hybrid",
                                           "tiny-granite4-hybrid", "tiny-bamba", "tiny-falcon-h1",
                                           "tiny-nemotron-h", "tiny-nemotron-h-moe",
                                           "tiny-kimi-linear", "tiny-bailing-hybrid"),
                         TestName);
INSTANTIATE_TEST_SUITE_P(Recurrent, DefaultModeTest,
                         ::testing::Values("tiny-lfm2", "tiny-lfm2-moe", "tiny-lfm3",
                                           "tiny-qwen3-next", "tiny-granite4-hybrid", "tiny-bamba",
                                           "tiny-falcon-h1", "tiny-nemotron-h",
                                           "tiny-nemotron-h-moe", "tiny-kimi-linear",
                                           "tiny-bailing-hybrid"),
                         TestName);
// Checkpoints of tools/checkpoints/further_variants.py.
INSTANTIATE_TEST_SUITE_P(
    Further, Float32ModeTest,
    ::testing::Values("tiny-laguna", "tiny-laguna-numbers", "tiny-minimax-m3",
                      "tiny-minimax-m3-text", "tiny-kolibri", "tiny-cohere2-moe",
                      "tiny-cohere2-moe-sum", "tiny-cohere-heads", "tiny-gptj", "tiny-codegen",
                      "tiny-nanochat", "tiny-lara-mini", "tiny-axk1", "tiny-axk1-unbiased",
                      "tiny-nemotron-h-latent", "tiny-gpt2", "tiny-gpt-bigcode",
                      "tiny-gpt-bigcode-heads", "tiny-gpt-neo", "tiny-opt", "tiny-biogpt",
                      "tiny-mimo-v2-flash", "tiny-beam", "tiny-persimmon", "tiny-stablelm-heads",
                      "tiny-olmo-limit", "tiny-dbrx", "tiny-bitnet", "tiny-aria",
                      "tiny-apertus-1p5", "tiny-gemma4-unified", "tiny-phi-heads"),
    TestName);
INSTANTIATE_TEST_SUITE_P(
    Further, DefaultModeTest,
    ::testing::Values("tiny-laguna", "tiny-laguna-numbers", "tiny-minimax-m3",
                      "tiny-minimax-m3-text", "tiny-kolibri", "tiny-cohere2-moe-sum",
                      "tiny-cohere-heads", "tiny-gptj", "tiny-codegen", "tiny-nanochat",
                      "tiny-axk1-unbiased", "tiny-nemotron-h-latent", "tiny-gpt2",
                      "tiny-gpt-bigcode", "tiny-gpt-neo", "tiny-opt", "tiny-biogpt",
                      "tiny-mimo-v2-flash", "tiny-beam", "tiny-persimmon", "tiny-stablelm-heads",
                      "tiny-olmo-limit", "tiny-dbrx", "tiny-bitnet", "tiny-aria"),
    TestName);
INSTANTIATE_TEST_SUITE_P(Checkpoints, Int8Test, ::testing::Values("qwen3-llmc-int8-w8a8"),
                         TestName);
INSTANTIATE_TEST_SUITE_P(Checkpoints, CheckpointActivationsTest,
                         ::testing::Values("llama4-modelopt-nvfp4", "llama4-quark-fp8",
                                           "qwen3-moe-llmc-nvfp4", "qwen3-moe-quark-mxfp4",
                                           "qwen3-llmc-fp8-block", "qwen3-llmc-int8-w8a8",
                                           "qwen3-modelopt-fp8"),
                         TestName);

}  // namespace
}  // namespace sluice
