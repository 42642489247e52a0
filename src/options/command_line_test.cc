#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "options/sources.h"

namespace sluice::options {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Settings ReadLine(const std::vector<std::string>& words, Dialect dialect = Dialect::kSluice) {
  auto resolved = Resolve(words, {}, kServe, dialect);
  EXPECT_TRUE(resolved.has_value()) << (resolved ? "" : resolved.error().message);
  return resolved ? resolved->settings : Settings();
}

std::string ErrorOf(const std::vector<std::string>& words) {
  auto resolved = Resolve(words, {}, kServe, Dialect::kSluice);
  EXPECT_FALSE(resolved.has_value());
  if (resolved) return "";
  EXPECT_EQ(resolved.error().code, ErrorCode::kInvalidArgument);
  return resolved.error().message;
}

TEST(CommandLine, DashesUnderscoresAndEqualsAreTheSame) {
  for (const auto& words : std::vector<std::vector<std::string>>{{"--max-num-seqs", "7"},
                                                                 {"--max_num_seqs", "7"},
                                                                 {"--max_num-seqs=7"},
                                                                 {"--max-num-seq", "7"}}) {
    EXPECT_EQ(ReadLine(words).Integer("max-num-seqs"), 7);
  }
}

TEST(CommandLine, TellsWhereSecretsStand) {
  const std::vector<std::string> words{"serve",      "m",  "--api-key=a", "--port", "1",
                                       "--api_key",  "b",  "c",           "--host", "h",
                                       "--hf-token", "--", "--api-key"};
  const auto line = ReadCommandLine(words, kServe, Dialect::kSluice);
  ASSERT_TRUE(line) << line.error().message;
  EXPECT_THAT(line->secrets, ElementsAre(2, 5, 6, 7, 10));
}

TEST(CommandLine, SecretFlagsBecomeVariablesThatSetTheSame) {
  const Settings settings =
      ReadLine({"m", "--api-key", "a", "b,\"c", "--hf-token", "t", "--port", "1"});
  const auto variables = SecretFlags(settings);
  EXPECT_EQ(variables.size(), 2);
  const auto again = Resolve({"m"}, variables, kServe, Dialect::kSluice);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->settings.List("api-key"), settings.List("api-key"));
  EXPECT_EQ(again->settings.TextOr("hf-token"), "t");
  EXPECT_THAT(SecretVariables(),
              ::testing::IsSupersetOf({"SLUICE_API_KEY", "VLLM_API_KEY", "SLUICE_HF_TOKEN",
                                       "SLUICE_DISTRIBUTED_SECRET"}));
}

TEST(CommandLine, TheModelIsAPositionalWord) {
  const Settings settings = ReadLine({"org/model", "--port", "0", "--enforce-eager"});
  EXPECT_THAT(settings.positionals(), ElementsAre("org/model"));
  EXPECT_EQ(settings.Integer("port"), 0);
  EXPECT_THAT(ReadLine({"--port", "1", "--", "--odd"}).positionals(), ElementsAre("--odd"));
}

TEST(CommandLine, FlagsComeInPairsAndTheLastOneCounts) {
  EXPECT_TRUE(ReadLine({}).Flag("enable-prefix-caching"));
  EXPECT_FALSE(ReadLine({"--no-enable-prefix-caching"}).Flag("enable-prefix-caching"));
  EXPECT_FALSE(ReadLine({"--no_enable_prefix_caching"}).Flag("enable-prefix-caching"));
  EXPECT_TRUE(ReadLine({"--no-enable-prefix-caching", "--enable-prefix-caching"})
                  .Flag("enable-prefix-caching"));
  EXPECT_FALSE(ReadLine({"--enable-prefix-caching=false"}).Flag("enable-prefix-caching"));
}

TEST(CommandLine, ListsTakeWordsUpToTheNextOptionAndAreJoined) {
  const Settings settings = ReadLine({"m", "--api-key", "a", "b", "--port", "1", "--api-key", "c"});
  EXPECT_THAT(settings.List("api-key"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(ReadLine({"--allowed-origins", "[\"x\", \"y\"]"}).List("allowed-origins"),
              ElementsAre("x", "y"));
  EXPECT_TRUE(ReadLine({}).List("allowed-origins").empty());
}

TEST(CommandLine, NegativeNumbersAndWordsAreValues) {
  EXPECT_EQ(ReadLine({"--max-logprobs", "-1"}).Integer("max-logprobs"), -1);
  EXPECT_EQ(ReadLine({"--max-model-len", "-1"}).Integer("max-model-len"), -1);
  EXPECT_EQ(ReadLine({"--max-model-len", "auto"}).Integer("max-model-len"), std::nullopt);
  EXPECT_EQ(ReadLine({"--max-model-len", "128k"}).Integer("max-model-len"), 128000);
  EXPECT_EQ(ReadLine({"--max-model-len", "128K"}).Integer("max-model-len"), 131072);
}

TEST(CommandLine, NoneMeansNotGiven) {
  EXPECT_EQ(ReadLine({"--gpu-memory-utilization", "0.5", "--gpu-memory-utilization", "None"})
                .Number("gpu-memory-utilization"),
            std::nullopt);
  EXPECT_FALSE(ReadLine({"--chat-template", ""}).Given("chat-template"));
}

TEST(CommandLine, KeysOfJsonOptions) {
  EXPECT_EQ(ReadLine({"--override-generation-config", "{\"top_k\":3}"})
                .Text("override-generation-config"),
            "{\"top_k\":3}");
  EXPECT_EQ(ReadLine({"--override-generation-config.temperature", "0.5",
                      "--override-generation-config.top_k=1k"})
                .Text("override-generation-config"),
            "{\"temperature\":0.5,\"top_k\":1000}");
  EXPECT_EQ(ReadLine({"-cc.pass_config.enable_noop", "true", "--compilation-config.mode=3"})
                .Text("compilation-config"),
            "{\"pass_config\":{\"enable_noop\":true},\"mode\":3}");
}

TEST(CommandLine, UnknownOptionsNameTheNearest) {
  EXPECT_THAT(ErrorOf({"--max-modle-len", "5"}), HasSubstr("--max-model-len"));
  EXPECT_THAT(ErrorOf({"--enable-prefix-cache"}), HasSubstr("--enable-prefix-caching"));
  EXPECT_THAT(ErrorOf({"--max", "5"}), HasSubstr("--max could be --max-model-len"));
  EXPECT_THAT(ErrorOf({"--zzzzzzzz"}), ::testing::Not(HasSubstr("did you mean")));
}

TEST(CommandLine, BadValuesNameWhatIsExpected) {
  EXPECT_THAT(ErrorOf({"--port", "70000"}), HasSubstr("--port: expected 0 to 65535, found 70000"));
  EXPECT_EQ(ErrorOf({"--port", "http"}),
            "--port: expected a whole number from 0 to 65535, found 'http' (Port to listen on; 0: "
            "any free port, shown in the log)");
  EXPECT_THAT(ErrorOf({"--port"}), HasSubstr("--port: expected a value (integer)"));
  EXPECT_THAT(ErrorOf({"--port", "--host", "x"}), HasSubstr("--port: expected a value (integer)"));
  EXPECT_THAT(ErrorOf({"--dtype", "int3"}), HasSubstr("auto, bfloat16"));
  EXPECT_THAT(ErrorOf({"--tensor-parallel-size", "0"}), HasSubstr("expected 1 to"));
  EXPECT_THAT(ErrorOf({"--override-generation-config", "[1]"}), HasSubstr("JSON object"));
  EXPECT_THAT(ErrorOf({"--port.x", "1"}), HasSubstr("no keys"));
}

TEST(CommandLine, SpellingsOfTrtllmServe) {
  const Settings settings =
      ReadLine({"m", "--max_batch_size", "1024", "--max_num_tokens", "2048", "--tp_size", "1",
                "--kv_cache_free_gpu_memory_fraction", "0.9"},
               Dialect::kTrtllm);
  EXPECT_EQ(settings.Integer("max-num-seqs"), 1024);
  EXPECT_EQ(settings.Integer("max-num-batched-tokens"), 2048);
  EXPECT_EQ(settings.Number("gpu-memory-utilization"), 0.9);
  EXPECT_THAT(ErrorOf({"--max_batch_size", "1024"}),
              HasSubstr("unrecognized arguments: --max_batch_size"));
}

TEST(CommandLine, HelpEndsTheReading) {
  EXPECT_EQ(Resolve({"--help"}, {}, kServe, Dialect::kSluice)->help, "");
  EXPECT_EQ(Resolve({"m", "--help=max"}, {}, kServe, Dialect::kSluice)->help, "max");
}

}  // namespace
}  // namespace sluice::options
