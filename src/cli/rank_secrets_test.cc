#include "cli/rank_secrets.h"

#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "options/sources.h"

namespace sluice::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

options::Settings SettingsOf(const std::vector<std::string>& words) {
  return options::Resolve(words, {}, options::kServe, options::Dialect::kSluice)->settings;
}

TEST(RankSecretsTest, TheCommandLineOfARankHasNone) {
  const std::vector<std::string> words{"serve", "m",      "--api-key", "a",
                                       "b",     "--port", "1",         "--hf-token=c"};
  std::vector<std::string> command{"sluice"};
  command.insert(command.end(), words.begin(), words.end());
  const auto settings = SettingsOf({words.begin() + 1, words.end()});
  EXPECT_THAT(*WithoutSecrets(command, settings),
              ElementsAre("sluice", "serve", "m", "--port", "1"));
}

TEST(RankSecretsTest, ARankFindsThemInItsVariables) {
  setenv("HF_TOKEN", "of the environment\nin two lines", 1);
  setenv("VLLM_API_KEY", "other", 1);
  const auto secrets = RankSecrets::Keep(SettingsOf({"m", "--api-key", "a", "b"}));
  ASSERT_TRUE(secrets) << secrets.error().message;
  unsetenv("HF_TOKEN");
  unsetenv("VLLM_API_KEY");
  setenv(kSecretsVariable, secrets->path().c_str(), 1);
  ASSERT_TRUE(TakeRankSecrets());
  EXPECT_EQ(std::getenv(kSecretsVariable), nullptr);
  EXPECT_STREQ(std::getenv("HF_TOKEN"), "of the environment\nin two lines");
  const auto again = options::Resolve({"m"}, options::ProcessEnvironment(), options::kServe,
                                      options::Dialect::kSluice);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_THAT(again->settings.List("api-key"), ElementsAre("a", "b"));
  unsetenv("HF_TOKEN");
  unsetenv("VLLM_API_KEY");
  unsetenv("SLUICE_API_KEY");
}

TEST(RankSecretsTest, AFileThatCannotBeReadIsNamed) {
  setenv(kSecretsVariable, "/proc/1/fd/99999", 1);
  const auto taken = TakeRankSecrets();
  ASSERT_FALSE(taken);
  EXPECT_THAT(taken.error().message, HasSubstr("/proc/1/fd/99999"));
  unsetenv(kSecretsVariable);
  EXPECT_TRUE(TakeRankSecrets());
}

}  // namespace
}  // namespace sluice::cli
