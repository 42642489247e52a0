#include "cli/startup_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/check_settings.h"
#include "cli/command.h"
#include "cli/explain_options.h"
#include "cli/usage.h"
#include "options/sources.h"

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
  const auto lines = EffectBlock(Read({"m", "--port", "8001", "-dcp", "2", "--swap-space", "4",
                                       "--max-num-scheduled-tokens", "64", "--api-key", "secret"},
                                      Dialect::kVllm, {{"NCCL_DEBUG", "WARN"}}));
  EXPECT_EQ(lines[0].substr(0, 55), "options: 2 act, 1 mapped, 3 without effect here (`sluic");
  EXPECT_THAT(lines, Contains("  act        --port 8001, --api-key ***"));
  EXPECT_THAT(lines, Contains("  mapped     --max-num-scheduled-tokens 64: "
                              "--max-num-batched-tokens, where that is larger or not given"));
  EXPECT_THAT(lines, Contains(HasSubstr("no effect  -dcp, NCCL_DEBUG: ranks divide rows")));
  EXPECT_THAT(lines, Contains(HasSubstr(
                         "no effect  --swap-space: the cache is kept in memory only; a preempted "
                         "sequence is computed again (retired before 0.32.0: omit it)")));
  EXPECT_THAT(EffectBlock(Read({"m"}, Dialect::kVllm)), IsEmpty());
}

TEST(StartupLines, MoreDevicesThanComputeAreAWarning) {
  EXPECT_THAT(
      UnusedDevices(Read({"m", "-dcp", "4", "-pcp", "1", "--max-parallel-loading-workers", "2"},
                         Dialect::kVllm)),
      ElementsAre(
          "-dcp 4 has no effect: ranks divide rows of weights (-tp) and layers (-pp) alone; "
          "answers do not depend on it"));
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
  EXPECT_THAT(error({"m", "--model", "n"}), HasSubstr("'m' by its place and 'n' by --model"));
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
