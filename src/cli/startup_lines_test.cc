#include "cli/startup_lines.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/check_settings.h"
#include "cli/command.h"
#include "cli/explain_options.h"
#include "cli/usage.h"
#include "options/dialect_table.h"
#include "options/sources.h"
#include "options/values.h"

namespace sluice::cli {
namespace {

using options::Dialect;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

options::Settings Read(const std::vector<std::string>& words, Dialect dialect,
                       const std::map<std::string, std::string>& environment = {}) {
  auto resolved = options::Resolve(words, environment, options::kServe, dialect);
  EXPECT_TRUE(resolved) << (resolved ? "" : resolved.error().message);
  return resolved ? resolved->settings : options::Settings();
}

TEST(StartupLines, ArgumentsAsPythonWritesThem) {
  EXPECT_EQ(NonDefaultArguments(Read(
                {"m/x", "--port", "8001", "--dtype", "float32", "--enforce-eager", "--seed", "0",
                 "--api-key", "k", "--served-model-name", "a", "b's", "--no-enable-prefix-caching",
                 "--override-generation-config", R"({"top_k":3,"x":[true,null,"y"]})"},
                Dialect::kVllm)),
            "{'model_tag': 'm/x', 'model': 'm/x', 'dtype': 'float32', "
            "'override_generation_config': {'top_k': 3, 'x': [True, None, 'y']}, "
            "'enable_prefix_caching': False, 'enforce_eager': True, 'port': 8001, "
            "'api_key': '***', 'served_model_name': ['a', \"b's\"]}");
}

TEST(StartupLines, TheBlockSaysWhatActsAndWhatDoesNot) {
  const OptionEffects effects =
      EffectsOf(Read({"m", "--port", "8001", "-dcp", "2", "--swap-space", "4", "-pcp", "1",
                      "--max-num-scheduled-tokens", "64", "--api-key", "secret"},
                     Dialect::kVllm, {{"NCCL_DEBUG", "WARN"}}));
  const auto lines = EffectBlock(effects);
  EXPECT_EQ(lines[0].substr(0, 55), "options: 2 have an effect, 1 are mapped, 4 have no effe");
  EXPECT_THAT(lines, Contains("  act        --port 8001, --api-key ***"));
  EXPECT_THAT(lines, Contains("  mapped     --max-num-scheduled-tokens 64: "
                              "--max-num-batched-tokens, if that option is larger or not given"));
  EXPECT_THAT(lines, Contains(HasSubstr("no effect  -pcp 1, NCCL_DEBUG: a model is divided")));
  EXPECT_THAT(UnansweredLines(effects),
              ElementsAre("-dcp 2 has no effect: a model is divided only with -tp and -pp; answers "
                          "do not depend on this option",
                          "--swap-space 4 has no effect: evicted blocks, including those of "
                          "preempted sequences, are kept with --kv-offloading-size and "
                          "--kv-offloading-path (retired before 0.32.0: omit it)"));
  EXPECT_THAT(EffectBlock(EffectsOf(Read({"m"}, Dialect::kVllm))), IsEmpty());
}

// Every option without effect in the dialects' tables must give a warning if its value requests
// something.
TEST(StartupLines, EveryOptionThatAsksInVainIsAWarning) {
  const auto asking = [](const options::Option& option) -> std::string {
    switch (option.type) {
      case options::Type::kFlag: return option.default_value == "true" ? "false" : "true";
      case options::Type::kInteger:
      case options::Type::kSize:
      case options::Type::kNumber: return option.default_value == "2" ? "3" : "2";
      case options::Type::kJson: return R"({"a": 1})";
      case options::Type::kString:
      case options::Type::kStrings: return "x";
      case options::Type::kChoice: break;
    }
    for (const std::string_view word : options::Split(option.choices, '|')) {
      if (word != option.default_value && word != "auto" && word != "none")
        return std::string(word);
    }
    return "";
  };
  int count = 0;
  for (const options::Option& option : options::Dialects().options) {
    if (option.effect != options::Effect::kNoEffect || (option.commands & options::kServe) == 0 ||
        option.dialects != options::kAllDialects) {
      continue;
    }
    const std::string name(FlagName(option));
    // A flag is given by its name, without a value.
    const auto words_of = [&](std::string_view value) {
      if (option.type == options::Type::kFlag) return (value == "true" ? "--" : "--no-") + name;
      return fmt::format("--{}={}", name, value);
    };
    const std::string value = asking(option);
    ASSERT_FALSE(value.empty()) << option.name;
    const auto lines_with = [&](const std::vector<std::string>& words) {
      const auto settings = options::Resolve(words, {}, options::kServe, Dialect::kVllm);
      EXPECT_TRUE(settings) << (settings ? "" : settings.error().message);
      return settings ? UnansweredLines(EffectsOf(settings->settings)) : std::vector<std::string>();
    };
    EXPECT_THAT(lines_with({"m", words_of(value)}), ElementsAre(HasSubstr(name))) << value;
    ++count;
    if (option.default_value.empty()) continue;
    EXPECT_THAT(lines_with({"m", words_of(option.default_value)}), IsEmpty()) << name;
  }
  EXPECT_GT(count, 150);
}

TEST(StartupLines, ValuesThatSwitchOffAskForNothing) {
  const auto lines = [](const std::vector<std::string>& words) {
    return UnansweredLines(EffectsOf(Read(words, Dialect::kVllm)));
  };
  EXPECT_THAT(lines({"m", "--cpu-offload-gb", "0", "--kv-offloading-size", "0.0",
                     "--kv-events-config", "{}", "--attention-backend", "auto",
                     "--no-enable-sleep-mode", "--tokenizer-mode", "auto"}),
              IsEmpty());
  EXPECT_THAT(lines({"m", "--kv-events-config", R"({"enable_kv_cache_events":true})"}), IsEmpty());
  EXPECT_THAT(
      lines({"m", "--enable-sleep-mode", "--cpu-offload-gb", "4", "--offload-backend", "uva"}),
      ElementsAre("--cpu-offload-gb 4, --offload-backend uva have no effect: weights and "
                  "cache are allocated once and stay in memory"));
  EXPECT_THAT(lines({"m", "-cc.mode", "3"}), ElementsAre(HasSubstr("--compilation-config mode")));
}

// Cases that the option table does not cover: options that need another option, and values that are
// not supported.
TEST(StartupLines, WhatDoesNotActIsNotListedAsActing) {
  const auto effects = [](const std::vector<std::string>& words,
                          Dialect dialect = Dialect::kSluice) {
    return EffectsOf(Read(words, dialect));
  };
  const auto vain = [&](const std::vector<std::string>& words) {
    const OptionEffects found = effects(words);
    EXPECT_THAT(found.acting, IsEmpty()) << words[1];
    return UnansweredLines(found);
  };
  EXPECT_THAT(vain({"m", "--speculative-config", R"({"method":"medusa","model":"x"})"}),
              ElementsAre(HasSubstr(
                  "medusa (it has a head for each of the next tokens) is not a supported method")));
  EXPECT_THAT(vain({"m", "--spec-method", "dspark", "--spec-tokens", "2"}),
              ElementsAre(HasSubstr("--spec-method dspark, --spec-tokens 2 have no effect")));
  const OptionEffects on_cpu = effects({"m", "--async-scheduling", "--device", "cpu"});
  EXPECT_THAT(on_cpu.acting, ElementsAre("--device cpu"));
  EXPECT_THAT(
      UnansweredLines(on_cpu),
      ElementsAre("--async-scheduling has no effect: it needs --device cuda, hip or emulated"));
  EXPECT_THAT(vain({"m", "--max-lora-rank", "64"}),
              ElementsAre("--max-lora-rank 64 has no effect: it needs --enable-lora"));
  EXPECT_THAT(
      vain({"m", "--structured-outputs-config", R"({"backend":"guidance","reasoning_parser":""})"}),
      ElementsAre(HasSubstr("--structured-outputs-config backend has no effect")));
  EXPECT_THAT(vain({"m", "-cc.mode", "3"}).size(), 1u);
  EXPECT_THAT(effects({"m", "--tokenizer-mode", "mistral"}).acting, IsEmpty());
  EXPECT_THAT(effects({"m", "--tokenizer-mode", "deepseek_v4"}).acting,
              ElementsAre("--tokenizer-mode deepseek_v4"));
  EXPECT_THAT(
      effects({"m", "--priority-ageing-seconds", "5", "--scheduling-policy", "fcfs"}).acting,
      ElementsAre("--scheduling-policy fcfs"));
  EXPECT_THAT(effects({"m", "--priority-ageing-seconds", "5"}).acting,
              ElementsAre("--priority-ageing-seconds 5"));
  EXPECT_THAT(effects({"m", "--max-lora-rank", "64", "--enable-lora"}).acting.size(), 2u);
  EXPECT_THAT(effects({"m", "--spec-method", "ngram", "--spec-tokens", "2"}).acting.size(), 2u);
}

TEST(CheckSettings, ContradictionsNameBothOptions) {
  const auto error = [](const std::vector<std::string>& words) {
    const Status status = CheckSettings(Read(words, Dialect::kSluice));
    EXPECT_FALSE(status) << words[1];
    return status ? "" : status.error().message;
  };
  EXPECT_THAT(error({"m", "--enable-auto-tool-choice"}), HasSubstr("--tool-call-parser"));
  EXPECT_THAT(error({"m", "--enable-log-outputs"}), HasSubstr("--enable-log-requests"));
  EXPECT_THAT(error({"m", "--enable-log-requests", "--disable-log-requests"}),
              HasSubstr("contradict each other"));
  EXPECT_THAT(error({"m", "--disable-log-stats", "--log-stats-interval", "5"}),
              HasSubstr("--log-stats-interval"));
  EXPECT_THAT(error({"m", "--fingerprint-mode", "custom"}), HasSubstr("--fingerprint-value"));
  EXPECT_THAT(error({"m", "--fingerprint-value", "x"}), HasSubstr("--fingerprint-mode"));
  EXPECT_THAT(error({"m", "--ssl-keyfile", "k"}), HasSubstr("requires --ssl-certfile"));
  EXPECT_THAT(error({"m", "--ssl-certfile", "c", "--ssl-cert-reqs", "2"}),
              HasSubstr("requires --ssl-ca-certs"));
  EXPECT_THAT(error({"m", "--protect-all"}), HasSubstr("requires --api-key"));
  EXPECT_THAT(error({"m", "--model", "n"}),
              HasSubstr("the positional argument names the model 'm', and --model names 'n'"));
  EXPECT_THAT(error({"m", "-q", "bogus"}), HasSubstr("--quantization: expected one of awq, "));
  EXPECT_THAT(
      error({"m", "--cudagraph-capture-sizes", "1", "2", "-cc.cudagraph_capture_sizes", "[1,2]"}),
      HasSubstr("are the same setting"));
  EXPECT_TRUE(CheckSettings(Read({"m", "--model", "m", "--device", "cpu", "-q", "modelopt",
                                  "--enable-auto-tool-choice", "--tool-call-parser", "hermes"},
                                 Dialect::kSluice)));
}

TEST(ExplainOptions, EveryRowSaysWhatItDoes) {
  int refused = 0;
  for (const Explanation& row : ExplainOptions()) {
    EXPECT_FALSE(row.text.empty()) << row.what;
    EXPECT_FALSE(row.dialects.empty()) << row.what;
    refused += row.effect == "refused";
  }
  EXPECT_GT(refused, 10);
  EXPECT_GT(ExplainOptions().size(), 600);
}

TEST(Usage, VersionsOfTheDialects) {
  EXPECT_THAT(VersionIn(Dialect::kVllm), HasSubstr("+sluice."));
  EXPECT_EQ(VersionIn(Dialect::kVllm).find("+sluice." + VersionIn(Dialect::kSluice)),
            VersionIn(Dialect::kVllm).find('+'));
}

}  // namespace
}  // namespace sluice::cli
