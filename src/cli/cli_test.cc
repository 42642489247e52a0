#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json_testing.h"
#include "base/source_path_testing.h"
#include "cli/bench_report.h"
#include "cli/command.h"
#include "cli/configs.h"
#include "cli/exit_code.h"
#include "cli/limits.h"
#include "cli/metrics_help.h"
#include "cli/progress.h"
#include "options/sources.h"
#include "options/values.h"

namespace sluice::cli {
namespace {

using sluice::testing::Json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

options::Settings Read(const std::vector<std::string>& words,
                       options::Command command = options::kServe) {
  auto resolved = options::Resolve(words, {}, command, options::Dialect::kSluice);
  EXPECT_TRUE(resolved) << (resolved ? "" : resolved.error().message);
  return resolved ? resolved->settings : options::Settings();
}

TEST(Configs, DefaultsOfTheTableAreThoseOfTheConfigurations) {
  const options::Settings settings = Read({"m"});
  EXPECT_TRUE(*MakeEngineConfig(settings, {}) == EngineConfig());
  EXPECT_FALSE(*MakeEngineConfig(Read({"m", "--block-size", "32"}), {}) == EngineConfig());
  EXPECT_EQ(settings.Integer("max-num-seqs"), kDefaultMaxNumSeqs);
  EXPECT_EQ(settings.Integer("max-num-batched-tokens"), kDefaultMaxNumBatchedTokens);
  EXPECT_EQ(settings.Number("shutdown-timeout"), LoopLimits().drain_seconds);
  ServerConfig server = MakeServerConfig(settings, {});
  AddServeOptions(settings, server);
  const ServerConfig plain;
  EXPECT_EQ(server.host, "127.0.0.1");  // differs from the default of ServerConfig
  EXPECT_EQ(server.port, plain.port);
  EXPECT_EQ(server.allowed_origins, plain.allowed_origins);
  EXPECT_EQ(server.max_body_bytes, plain.max_body_bytes);
  EXPECT_EQ(server.max_header_bytes, plain.max_header_bytes);
  EXPECT_EQ(server.max_connections, plain.max_connections);
  EXPECT_EQ(server.max_pending_requests, plain.max_pending_requests);
  EXPECT_EQ(server.keep_alive_seconds, plain.keep_alive_seconds);
  EXPECT_EQ(server.max_logprobs, plain.max_logprobs);
  EXPECT_EQ(server.response_role, plain.response_role);
}

TEST(Configs, OptionsReachTheConfigurations) {
  const options::Settings settings = Read({"m",
                                           "--dtype",
                                           "half",
                                           "--max-model-len",
                                           "4k",
                                           "--max-num-seqs",
                                           "3",
                                           "--gpu-memory-utilization",
                                           "0.5",
                                           "--kv-cache-memory-bytes",
                                           "1GiB",
                                           "--load-format",
                                           "dummy",
                                           "--scheduling-policy",
                                           "priority",
                                           "--priority-ageing-seconds",
                                           "2.5",
                                           "--priority-ageing-levels",
                                           "7",
                                           "--reasoning-effort-map",
                                           R"({"medium":"low"})",
                                           "--api-key",
                                           "a",
                                           "b",
                                           "--served-model-name",
                                           "x",
                                           "y",
                                           "--uvicorn-log-level",
                                           "warning",
                                           "--root-path",
                                           "/p"});
  const EngineConfig engine = *MakeEngineConfig(settings, {});
  EXPECT_EQ(engine.dtype, ElementType::kF16);
  EXPECT_EQ(engine.max_model_len, 4000);
  EXPECT_EQ(engine.max_num_seqs, 3);
  EXPECT_EQ(engine.memory_utilization, 0.5);
  EXPECT_EQ(engine.kv_cache_bytes, int64_t{1} << 30);
  EXPECT_TRUE(engine.dummy_weights);
  EXPECT_EQ(engine.scheduling_policy, SchedulingPolicy::kPriority);
  EXPECT_EQ(engine.ageing.level_us, 2500000);
  EXPECT_EQ(engine.ageing.max_levels, 7);
  ServerConfig server = MakeServerConfig(settings, {});
  AddServeOptions(settings, server);
  EXPECT_THAT(server.api_keys, ElementsAre("a", "b"));
  EXPECT_THAT(server.served_model_names, ElementsAre("x", "y"));
  EXPECT_TRUE(server.disable_access_log);
  EXPECT_TRUE(server.priority_scheduling);
  EXPECT_THAT(server.reasoning_efforts, ElementsAre(Pair("medium", "low")));
  EXPECT_EQ(server.root_path, "/p");
}

TEST(Configs, EveryWordThatTheTableTakesHasAValue) {
  for (const char* name : {"dtype", "kv-cache-dtype", "activation-format", "device", "cpu-isa"}) {
    const options::Option& option = options::Find(name);
    const std::string_view words = option.words.empty() ? option.choices : option.words;
    for (const std::string_view word : options::Split(words, '|')) {
      const auto config = MakeEngineConfig(Read({"m", fmt::format("--{}={}", name, word)}), {});
      ASSERT_TRUE(config) << name << " " << word;
      EXPECT_EQ(*config == EngineConfig(), word == "auto") << name << " " << word;
    }
  }
}

TEST(Configs, PortableKernelsAreOfTheCpu) {
  for (const char* word : {"--arithmetic=portable", "--cpu-isa=portable"}) {
    const auto config = MakeEngineConfig(Read({"m", word}), {});
    ASSERT_TRUE(config);
    EXPECT_EQ(config->cpu_isa, kernels::Isa::kPortable);
    EXPECT_EQ(config->device, DeviceChoice::kCpu);
  }
  EXPECT_EQ(MakeEngineConfig(Read({"m", "--cpu-isa=avx2"}), {})->device, DeviceChoice::kAuto);
}

TEST(Configs, GenerationConfigNamesAFolder) {
  const auto folder_of = [](const std::string& source) {
    return MakeEngineConfig(Read({"m", "--generation-config", source}), {});
  };
  EXPECT_EQ(folder_of("auto")->generation_config_folder, "");
  EXPECT_EQ(folder_of("vllm")->generation_config_folder, "");
  const std::string model = SourcePath("models/abacus");
  EXPECT_EQ(folder_of(model)->generation_config_folder, model);
  const std::string without = SourcePath("docs");
  EXPECT_THAT(folder_of(without).error().message, HasSubstr("--generation-config " + without));
  EXPECT_THAT(folder_of("/other/folder").error().message, HasSubstr("/other/folder"));
}

TEST(Configs, AutomaticLengthsAreLeftToTheEngine) {
  EXPECT_EQ(MakeEngineConfig(Read({"m", "--max-model-len", "auto"}), {})->max_model_len,
            std::nullopt);
  EXPECT_EQ(MakeEngineConfig(Read({"m", "--max-model-len", "-1"}), {})->max_model_len,
            std::nullopt);
  EXPECT_FALSE(MakeEngineConfig(Read({"m", "--max-model-len", "0"}), {}));
}

TEST(Configs, AModelIsNeeded) {
  const auto model = ResolveModelArgument(Read({}));
  ASSERT_FALSE(model);
  EXPECT_EQ(ExitCode(model.error().code), kExitUsage);
  EXPECT_FALSE(HasModelArgument(Read({})));
  EXPECT_TRUE(HasModelArgument(Read({"--model", "x"})));
}

TEST(Commands, EachHasHelp) {
  for (const Command& command : Commands()) {
    EXPECT_THAT(CommandHelp(command, ""), HasSubstr(std::string(command.summary))) << command.name;
    EXPECT_THAT(CommandHelp(command, "log"), HasSubstr("--log-level")) << command.name;
  }
  EXPECT_EQ(RunHelp({"nothing"}).error().code, ErrorCode::kInvalidArgument);
}

TEST(Metrics, ThePageListsEveryFamilyWithItsType) {
  const std::string page = MetricsMarkdown();
  EXPECT_THAT(page, HasSubstr("| `vllm:num_requests_running` | gauge | `engine` `model_name` |"));
  EXPECT_THAT(page, HasSubstr("`vllm:time_to_first_token_seconds` | histogram"));
}

// The shape of Llama-3.2-1B: 1.24 billion weights, each of which is read for each token.
TEST(Limits, WorkOfAKnownShape) {
  const auto config = ParseModelConfig(Json(R"({
      "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 16,
      "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
      "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "rms_norm_eps": 1e-5,
      "max_position_embeddings": 4096, "tie_word_embeddings": true})"));
  ASSERT_TRUE(config) << config.error().message;
  const ModelWork work = WorkOf(*config);
  EXPECT_EQ(work.row_operations, 2 * 16 * (2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 8192));
  EXPECT_EQ(work.row_operations + work.head_operations, 2 * 1235746816LL);
  // A prompt of n tokens has n (n + 1) / 2 pairs of a token and a position that it sees.
  EXPECT_NEAR(PrefillFlops(work, 512),
              2.0 * 512 * 973078528 + 2.0 * 262668288 + 2.0 * 512 * 513 * 2048 * 16, 1);
}

ModelWork WorkOfCheckpoint(const std::string& name) {
  const auto config = LoadModelConfig(SourcePath("tests/data/checkpoints/" + name));
  EXPECT_TRUE(config) << config.error().message;
  return config ? WorkOf(*config) : ModelWork();
}

// Three layers: the first has a dense MLP, the others have experts.
TEST(Limits, ATokenMeetsTheChosenExperts) {
  EXPECT_EQ(WorkOfCheckpoint("tiny-qwen3-moe-mixed").row_operations,
            2 * (3 * (64 * 256 + 128 * 64) + 3 * 64 * 96 + 2 * (3 * 3 * 64 * 48 + 6 * 64)));
}

// Four layers: the second has attention, the others have short convolutions of three tokens.
TEST(Limits, LayersAreCountedByTheirKind) {
  const ModelWork work = WorkOfCheckpoint("tiny-lfm2");
  const int64_t attention = 60 * 120 + 60 * 60, convolution = 60 * 180 + 60 * 60;
  const int64_t mlp = 3 * 60 * 96;
  EXPECT_EQ(work.row_operations, 2 * (attention + 3 * convolution + 4 * mlp) + 3 * 2 * 3 * 60);
  ASSERT_EQ(work.attention.size(), 1u);
  EXPECT_EQ(work.attention[0].position_operations, 4 * 60);
}

// A window of 24 in every layer.
TEST(Limits, AttentionSeesNoMoreThanItsWindow) {
  const ModelWork work = WorkOfCheckpoint("tiny-mistral-window");
  const double fixed =
      100.0 * static_cast<double>(work.row_operations) + static_cast<double>(work.head_operations);
  const double pairs = 24 * 25 / 2 + 76 * 24;
  EXPECT_EQ(PrefillFlops(work, 100), fixed + pairs * 2 * 4 * 4 * 32);
}

TEST(Report, FiguresStandBesideTheirBounds) {
  EngineInfo info;
  info.model.num_hidden_layers = 1;
  info.model.hidden_size = info.model.intermediate_size = info.model.vocab_size = 1000;
  info.model.num_attention_heads = info.model.num_key_value_heads = 10;
  info.model.head_dim = 100;
  info.token_weight_bytes = 16'000'000;
  BenchReport report = MakeReport(info, MachineLimits{32e6, 1e9, 0, 1e8}, 1, 10, 11);
  BatchResult run;
  run.seconds = 2;
  run.prefill_seconds = 1;
  run.first_token_seconds = {1};
  run.decode_seconds = 1;
  run.decode = {.steps = 1, .tokens = 1, .model_seconds = 0.75};
  report.runs = {run};
  // The expected figures: 16 MB per step, one step per second.
  EXPECT_THAT(report.Text(), HasSubstr("0.02 GB/s of weights, 50 % of the read bandwidth"));
  EXPECT_THAT(report.Text(), HasSubstr("host     250.000 ms a step"));
  EXPECT_EQ(report.Json().Find("decode_tokens_per_second")->as_double(), 1);
}

TEST(Progress, Bytes) {
  EXPECT_EQ(FormatBytes(17), "17 B");
  EXPECT_EQ(FormatBytes(1536), "1.50 KiB");
  EXPECT_EQ(FormatBytes(int64_t{3} << 30), "3.00 GiB");
}

}  // namespace
}  // namespace sluice::cli
