#include "models/config_overrides.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Overridden(const char* config, const char* overrides) {
  const auto result = OverrideConfig(*json::Parse(config), *json::Parse(overrides));
  return result ? json::Write(*result) : "error: " + result.error().message;
}

TEST(ConfigOverridesTest, ABlockOfRopeIsReplacedButForItsTheta) {
  const char* const block = R"({"rope_scaling":{"rope_type":"linear","factor":2}})";
  constexpr const char* kMade =
      R"({"a":1,"rope_parameters":{"rope_type":"linear","factor":2,"rope_theta":5}})";
  EXPECT_EQ(
      Overridden(R"({"a":1,"rope_parameters":{"rope_type":"yarn","rope_theta":5,"beta_fast":3}})",
                 block),
      kMade);
  EXPECT_EQ(Overridden(R"({"a":1,"rope_scaling":{"rope_theta":5}})", block), kMade);
  EXPECT_EQ(Overridden(R"({"a":1})", block),
            R"({"a":1,"rope_parameters":{"rope_type":"linear","factor":2}})");
  EXPECT_EQ(Overridden(R"({"rope_parameters":{"rope_type":"yarn","rope_theta":5}})",
                       R"({"rope_scaling":null})"),
            R"({"rope_theta":5,"rope_parameters":null})");
}

TEST(ConfigOverridesTest, AThetaReplacesTheOneThatThereIs) {
  EXPECT_EQ(Overridden(R"({"rope_parameters":{"rope_theta":5,"factor":2}})", R"({"rope_theta":7})"),
            R"({"rope_parameters":{"factor":2},"rope_theta":7})");
  EXPECT_EQ(Overridden(R"({"rope_theta":5})",
                       R"({"rope_theta":7,"rope_scaling":{"factor":2,"rope_theta":6}})"),
            R"({"rope_theta":7,"rope_parameters":{"factor":2}})");
}

TEST(ConfigOverridesTest, OtherKeysAreSetOrRefused) {
  EXPECT_EQ(Overridden(R"({"max_position_embeddings":5})",
                       R"({"max_position_embeddings":7,"eos_token_id":[1]})"),
            R"({"max_position_embeddings":7,"eos_token_id":[1]})");
  for (const char* key : {"hidden_size", "num_hidden_layers", "quantization_config", "nonsense"}) {
    EXPECT_THAT(
        Overridden("{}", (R"({")" + std::string(key) + R"(":1})").c_str()),
        AllOf(HasSubstr("error: --hf-overrides: " + std::string(key)), HasSubstr("rope_scaling")));
  }
}

TEST(ConfigOverridesTest, NestedTextModels) {
  const char* const config = R"({"text_config":{"rope_theta":5},"x":1})";
  constexpr const char* kMade = R"({"text_config":{"rope_theta":7},"x":1})";
  EXPECT_EQ(Overridden(config, R"({"rope_theta":7})"), kMade);
  EXPECT_EQ(Overridden(config, R"({"text_config":{"rope_theta":7}})"), kMade);
  EXPECT_THAT(Overridden(config, R"({"text_config":7})"), HasSubstr("must be an object"));
  EXPECT_THAT(Overridden(config, R"({"text_config":{"hidden_size":7}})"), HasSubstr("hidden_size"));
}

}  // namespace
}  // namespace sluice
