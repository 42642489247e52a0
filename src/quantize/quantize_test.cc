// Quantizes complete checkpoints: the result can be loaded, its configuration describes it, and its
// weights are close to the source's.
#include <sys/resource.h>
#include <cmath>
#include <csignal>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/source_path_testing.h"
#include "checkpoint/checkpoint_testing.h"
#include "checkpoint/scheme.h"
#include "models/model_config.h"
#include "quantize/compare_models.h"
#include "quantize/quantize_checkpoint.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

fs::path Sample(const std::string& name) {
  return std::filesystem::path(SourcePath("tests/data/checkpoints")) / name;
}

std::vector<std::vector<int32_t>> SomeTokens() {
  std::vector<std::vector<int32_t>> chunks;
  for (int32_t chunk = 0; chunk < 4; ++chunk) {
    auto& tokens = chunks.emplace_back();
    for (int32_t i = 0; i < 48; ++i) tokens.push_back((chunk * 131 + i * 37 + i * i) % 500);
  }
  return chunks;
}

class QuantizeTest : public ::testing::Test {
 protected:
  QuantizeOptions OptionsFor(const char* target) {
    QuantizeOptions options;
    options.target = FindQuantizeTarget(target);
    if (options.target->needs_calibration()) options.calibration = SomeTokens();
    return options;
  }
  fs::path out() const { return folder_.path() / "out"; }

  TemporaryFolder folder_;
  ThreadPool pool_{2};
};

TEST_F(QuantizeTest, EveryLayoutLoadsAndIsCloseToItsSource) {
  const struct {
    const char *source, *target, *scheme;
    double weight_error, divergence;
  } kCases[] = {
      {"llama-bf16", "modelopt-fp8", "ModelOpt FP8", 0.04, 0.02},
      {"llama-bf16", "modelopt-nvfp4", "ModelOpt NVFP4", 0.12, 0.25},
      {"llama-bf16", "quark-fp8", "Quark FP8 per-tensor", 0.04, 0.02},
      {"llama-bf16", "quark-mxfp4", "Quark MXFP4", 0.14, 0.25},
      {"llama-bf16", "block-fp8", "FP8 in blocks of 128x128", 0.04, 0.02},
      {"llama-bf16", "fp8-dynamic", "compressed-tensors FP8 per-row", 0.04, 0.02},
      {"llama-bf16", "int8-w8a8", "compressed-tensors INT8", 0.02, 0.01},
      {"llama-tied-bf16-sharded", "modelopt-fp8", "ModelOpt FP8", 0.04, 0.02},
      {"qwen3-bf16", "fp8-dynamic", "compressed-tensors FP8 per-row", 0.04, 0.02},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(fmt::format("{} to {}", test.source, test.target));
    QuantizeOptions options = OptionsFor(test.target);
    options.fp8_kv_cache = true;
    options.calibration = SomeTokens();
    fs::remove_all(out());
    int64_t done = 0, total = 0;
    const auto report = QuantizeCheckpoint(pool_, Sample(test.source), out(), options,
                                           [&](int64_t so_far, int64_t in_all) {
                                             EXPECT_GE(so_far, done);
                                             done = so_far;
                                             total = in_all;
                                           });
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(done, total);
    EXPECT_EQ(report->quantized_modules, 14);
    EXPECT_LT(report->relative_error, test.weight_error);
    EXPECT_GT(report->relative_error, 0.001);
    EXPECT_LT(report->written_bytes, report->source_bytes * 4 / 5);
    EXPECT_FALSE(fs::exists(out().string() + ".partial"));

    const auto config = LoadModelConfig(out());
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->scheme->Name(), test.scheme);
    EXPECT_TRUE(config->scheme->WantsFp8KvCache());
    EXPECT_EQ(config->scheme->PlannedFormat("lm_head").type, ElementType::kBF16);
    const auto checkpoint = Checkpoint::Open(out());
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const auto scales = config->scheme->FindKvScales(*checkpoint, "model.layers.1.self_attn");
    ASSERT_TRUE(scales);
    EXPECT_TRUE(scales->stored);
    EXPECT_GT(scales->k, 1e-5);
    EXPECT_LT(scales->k, 1);

    const auto weights = CompareWeights(pool_, {Sample(test.source)}, {out()});
    ASSERT_TRUE(weights) << weights.error().message;
    for (const WeightDifference& weight : *weights)
      EXPECT_LT(weight.relative_error, test.weight_error) << weight.module;
    const auto predictions = ComparePredictions(pool_, {Sample(test.source)}, {out()}, SomeTokens(),
                                                ModelOptions::ActivationRounding::kAuto, {});
    ASSERT_TRUE(predictions) << predictions.error().message;
    EXPECT_EQ(predictions->positions, 4 * 47);
    EXPECT_LT(predictions->kl_divergence, test.divergence);
    EXPECT_GT(predictions->kl_divergence, 0);
    EXPECT_GT(predictions->top1_agreement, 0.6);
  }
}

TEST_F(QuantizeTest, ExpertsOfATensorOfAllAreWrittenOneByOne) {
  auto tokens = SomeTokens();
  for (auto& chunk : tokens) {
    for (int32_t& token : chunk) token %= 120;  // the models' vocabularies have 128 tokens
  }
  // Fused expert tensors: either one per projection, or a single one for gate and up.
  for (const char* source : {"tiny-step3p7", "tiny-granitemoe"}) {
    SCOPED_TRACE(source);
    fs::remove_all(out());
    const auto report =
        QuantizeCheckpoint(pool_, Sample(source), out(), OptionsFor("int8-w8a8"), {});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_GT(report->quantized_modules, 14);
    const auto predictions = ComparePredictions(pool_, {Sample(source)}, {out()}, tokens,
                                                ModelOptions::ActivationRounding::kAuto, {});
    ASSERT_TRUE(predictions) << predictions.error().message;
    EXPECT_LT(predictions->kl_divergence, 0.05);
    EXPECT_GT(predictions->kl_divergence, 0);
  }
}

TEST_F(QuantizeTest, WeightsRoundedWhileLoadingAreThoseOfTheWrittenCheckpoint) {
  const struct {
    const char *target, *word;
  } kCases[] = {{"block-fp8", "fp8_per_block"}, {"quark-mxfp4", "mxfp4"}};
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.word);
    fs::remove_all(out());
    ASSERT_TRUE(
        QuantizeCheckpoint(pool_, Sample("llama-bf16"), out(), OptionsFor(test.target), {}));
    const ComparedModel rounded{Sample("llama-bf16"), {test.word, ""}};
    const auto weights = CompareWeights(pool_, {out()}, rounded);
    ASSERT_TRUE(weights) << weights.error().message;
    for (const WeightDifference& weight : *weights) EXPECT_EQ(weight.relative_error, 0);
    const auto predictions = ComparePredictions(pool_, {out()}, rounded, SomeTokens(),
                                                ModelOptions::ActivationRounding::kBf16, {});
    ASSERT_TRUE(predictions) << predictions.error().message;
    EXPECT_EQ(predictions->kl_divergence, 0);
  }
}

TEST_F(QuantizeTest, ExcludedModulesStayAndAreListed) {
  QuantizeOptions options = OptionsFor("fp8-dynamic");
  options.exclude = {"*self_attn*", "model.layers.1.mlp.down_proj"};
  ASSERT_TRUE(QuantizeCheckpoint(pool_, Sample("llama-bf16"), out(), options, {}));
  const auto config = LoadModelConfig(out());
  ASSERT_TRUE(config);
  const auto planned = [&](const char* module) {
    return config->scheme->PlannedFormat(module).type;
  };
  EXPECT_EQ(planned("model.layers.0.self_attn.q_proj"), ElementType::kBF16);
  EXPECT_EQ(planned("model.layers.1.mlp.down_proj"), ElementType::kBF16);
  EXPECT_EQ(planned("model.layers.0.mlp.down_proj"), ElementType::kF8E4M3);
  const auto weights = CompareWeights(pool_, {Sample("llama-bf16")}, {out()});
  ASSERT_TRUE(weights) << weights.error().message;
  for (const WeightDifference& weight : *weights) {
    const bool excluded = weight.module.find("self_attn") != std::string::npos ||
                          weight.module == "model.layers.1.mlp.down_proj" ||
                          weight.module.find("layers") == std::string::npos;
    EXPECT_EQ(weight.relative_error == 0, excluded) << weight.module;
  }
}

TEST_F(QuantizeTest, LargeModelsGetSeveralFilesAndAnIndex) {
  QuantizeOptions options = OptionsFor("block-fp8");
  options.max_file_bytes = 300'000;
  ASSERT_TRUE(QuantizeCheckpoint(pool_, Sample("llama-bf16"), out(), options, {}));
  EXPECT_TRUE(fs::exists(out() / "model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(out() / "model.safetensors"));
  const auto checkpoint = Checkpoint::Open(out());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_GT(checkpoint->files().size(), 2u);
  for (const auto& [name, tensor] : checkpoint->tensors()) {
    EXPECT_EQ(tensor.info->offset % static_cast<uint64_t>(BitsPerElement(tensor.info->type) / 8),
              0u)
        << name;
  }
}

TEST_F(QuantizeTest, CopiesWhatStandsBesideTheWeights) {
  ASSERT_TRUE(QuantizeCheckpoint(pool_, Sample("llama-bf16"), out(), OptionsFor("int8-w8a8"), {}));
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
    EXPECT_TRUE(fs::exists(out() / name)) << name;
}

// Neither unreadable files nor files that would fill the disk are ignored silently.
TEST_F(QuantizeTest, RefusesBrokenLinksAndLeavesHugeFilesOut) {
  const fs::path source = out().string() + ".source";
  fs::remove_all(source);
  fs::copy(Sample("llama-bf16"), source);
  std::ofstream(source / "notes.dat").close();
  fs::resize_file(source / "notes.dat", uintmax_t{2} << 30);  // The file is sparse.
  fs::create_symlink("no_such_blob", source / "merges.txt");
  const auto broken = QuantizeCheckpoint(pool_, source, out(), OptionsFor("int8-w8a8"), {});
  ASSERT_FALSE(broken);
  EXPECT_THAT(broken.error().message,
              HasSubstr("merges.txt is a link to no_such_blob, which cannot be followed"));
  fs::remove(source / "merges.txt");
  const auto report = QuantizeCheckpoint(pool_, source, out(), OptionsFor("int8-w8a8"), {});
  EXPECT_TRUE(report) << report.error().message;
  EXPECT_FALSE(fs::exists(out() / "notes.dat"));
  EXPECT_TRUE(fs::exists(out() / "tokenizer.json"));
  fs::remove_all(source);
}

TEST_F(QuantizeTest, RefusesByName) {
  const auto failure = [&](const char* source, const QuantizeOptions& options) {
    const auto report = QuantizeCheckpoint(pool_, Sample(source), out(), options, {});
    return report ? "written" : report.error().message;
  };
  EXPECT_THAT(failure("tiny-gpt-oss", OptionsFor("fp8-dynamic")),
              HasSubstr("alternating rows of gate and up"));
  EXPECT_THAT(failure("qwen3-modelopt-fp8", OptionsFor("fp8-dynamic")),
              AllOf(HasSubstr("already quantized"), HasSubstr("ModelOpt FP8")));
  QuantizeOptions uncalibrated = OptionsFor("modelopt-fp8");
  uncalibrated.calibration.clear();
  EXPECT_THAT(failure("llama-bf16", uncalibrated), HasSubstr("--calibrate"));
  QuantizeOptions kv = OptionsFor("fp8-dynamic");
  kv.fp8_kv_cache = true;
  EXPECT_THAT(failure("llama-bf16", kv), HasSubstr("keys and values"));
  QuantizeOptions nothing = OptionsFor("fp8-dynamic");
  nothing.exclude = {"*"};
  EXPECT_THAT(failure("llama-bf16", nothing), HasSubstr("nothing to quantize"));
  nothing.exclude = {"re:("};
  EXPECT_THAT(failure("llama-bf16", nothing), HasSubstr("--exclude"));
  EXPECT_FALSE(fs::exists(out()));
  fs::create_symlink("nowhere", out());
  EXPECT_THAT(failure("llama-bf16", OptionsFor("fp8-dynamic")),
              HasSubstr("nothing is overwritten"));
  fs::remove(out());
  fs::create_directories(out());
  EXPECT_THAT(failure("llama-bf16", OptionsFor("fp8-dynamic")),
              HasSubstr("nothing is overwritten"));
}

TEST_F(QuantizeTest, WhatAnInterruptedRunLeftIsReplacedAndNeverLoads) {
  const fs::path partial = out().string() + ".partial";
  fs::create_directories(partial);
  std::ofstream(partial / "model.safetensors") << "half of it";
  EXPECT_FALSE(LoadModelConfig(partial));
  ASSERT_TRUE(QuantizeCheckpoint(pool_, Sample("llama-bf16"), out(), OptionsFor("block-fp8"), {}));
  EXPECT_FALSE(fs::exists(partial));
  EXPECT_TRUE(LoadModelConfig(out()));
}

// The work of two runs must not be mixed.
TEST_F(QuantizeTest, OfTwoRunsAtATimeTheSecondIsRefused) {
  ThreadPool others(1);
  Result<QuantizeReport> second = QuantizeReport();
  int calls = 0;
  const auto first = QuantizeCheckpoint(
      pool_, Sample("llama-bf16"), out(), OptionsFor("block-fp8"), [&](int64_t, int64_t) {
        if (++calls != 5) return;
        second =
            QuantizeCheckpoint(others, Sample("llama-bf16"), out(), OptionsFor("block-fp8"), {});
      });
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_GT(calls, 5);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(second.error().message, HasSubstr("out.partial: another run works in this folder"));
  EXPECT_FALSE(fs::exists(out().string() + ".partial"));
  const auto weights = CompareWeights(pool_, {Sample("llama-bf16")}, {out()});
  ASSERT_TRUE(weights) << weights.error().message;
  for (const WeightDifference& weight : *weights)
    EXPECT_LT(weight.relative_error, 0.04) << weight.module;
}

// Limits the size of files that this process can write, like a full disk.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit before_{};
};

TEST_F(QuantizeTest, WhereThereIsNoRoomNothingIsLeft) {
  // There is no room for the weights or, in a later test, for the other files.
  const auto weights = fs::file_size(Sample("llama-bf16") / "model.safetensors");
  const fs::path source = folder_.path() / "source";
  fs::create_directories(source);
  for (const char* name : {"config.json", "model.safetensors"})
    fs::copy_file(Sample("llama-bf16") / name, source / name);
  std::ofstream(source / "notes.txt") << std::string(2 * weights, ' ');
  const std::pair<rlim_t, const char*> cases[] = {{100'000, "cannot reserve space"},
                                                  {weights * 3 / 2, "source/notes.txt"}};
  for (const auto& [limit, message] : cases) {
    Result<QuantizeReport> report = QuantizeReport();
    {
      const FileLimit none(limit);
      report = QuantizeCheckpoint(pool_, source, out(), OptionsFor("block-fp8"), {});
    }
    ASSERT_FALSE(report);
    EXPECT_THAT(report.error().message, HasSubstr(message));
    EXPECT_FALSE(fs::exists(out()));
    EXPECT_FALSE(fs::exists(out().string() + ".partial"));
  }
  EXPECT_TRUE(QuantizeCheckpoint(pool_, source, out(), OptionsFor("block-fp8"), {}));
}

TEST_F(QuantizeTest, TheFolderToWriteMayEndInASlash) {
  const fs::path written = out() / "";
  ASSERT_EQ(written.string().back(), '/');
  const auto report =
      QuantizeCheckpoint(pool_, Sample("llama-bf16"), written, OptionsFor("block-fp8"), {});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(LoadModelConfig(out()));
  EXPECT_FALSE(fs::exists(out() / ".partial"));
  EXPECT_FALSE(QuantizeCheckpoint(pool_, Sample("llama-bf16"), "", OptionsFor("block-fp8"), {}));
}

TEST_F(QuantizeTest, ThreadsDoNotChangeWhatIsWritten) {
  const auto read = [](const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  std::string first;
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    fs::remove_all(out());
    ASSERT_TRUE(
        QuantizeCheckpoint(pool, Sample("llama-bf16"), out(), OptionsFor("modelopt-nvfp4"), {}));
    const std::string bytes = read(out() / "model.safetensors");
    ASSERT_FALSE(bytes.empty());
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first);
  }
}

TEST(CompareModelsTest, DivergenceOfKnownDistributions) {
  // p = (1/2, 1/2) and q = (3/4, 1/4).
  const std::vector<float> p = {0, 0}, q = {std::log(3.0f), 0};
  PredictionDifference sums;
  AddPosition(p, q, 0, sums);
  EXPECT_NEAR(sums.kl_divergence, 0.5 * std::log(0.5 / 0.75) + 0.5 * std::log(0.5 / 0.25), 1e-6);
  EXPECT_NEAR(sums.perplexity_a, std::log(2.0), 1e-6);
  EXPECT_NEAR(sums.perplexity_b, std::log(4.0 / 3), 1e-6);
  EXPECT_EQ(sums.top1_agreement, 1);
  const std::vector<float> other = {0, 5};
  AddPosition(q, other, 1, sums);
  EXPECT_EQ(sums.top1_agreement, 1);
  EXPECT_EQ(sums.positions, 2);
}

}  // namespace
}  // namespace sluice
