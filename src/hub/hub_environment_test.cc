#include "hub/hub_environment.h"

#include <unistd.h>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(HubEnvironmentTest, FindsTheToken) {
  const auto home =
      std::filesystem::path(::testing::TempDir()) / ("sluice_token_" + std::to_string(getpid()));
  std::filesystem::create_directories(home);
  HubEnvironment environment{.hf_home = home.string()};
  EXPECT_EQ(environment.Token().value(), "");
  std::ofstream(home / "token") << "hf_file\n";
  EXPECT_EQ(environment.Token().value(), "hf_file");
  std::ofstream(home / "other") << " hf_other ";
  environment.hf_token_path = (home / "other").string();
  EXPECT_EQ(environment.Token().value(), "hf_other");
  environment.no_implicit_token = true;
  EXPECT_EQ(environment.Token().value(), "");
  environment.hf_token = "hf_variable";
  EXPECT_EQ(environment.Token().value(), "hf_variable");
  for (const char* bad : {"a b", "a\nX-Header: b", "\xc3\xa4"}) {
    environment.hf_token = bad;
    ASSERT_FALSE(environment.Token()) << bad;
    EXPECT_THAT(environment.Token().error().message, ::testing::Not(::testing::HasSubstr(bad)));
  }
  std::filesystem::remove_all(home);
}

TEST(HubEnvironmentTest, ChecksTheEndpoint) {
  HubEnvironment environment;
  EXPECT_EQ(environment.Endpoint().value(), "https://huggingface.co");
  environment.hf_endpoint = "http://mirror:8080/hub//";
  EXPECT_EQ(environment.Endpoint().value(), "http://mirror:8080/hub");
  for (const char* bad : {"mirror", "ftp://mirror", "https://mirror/?a", "https://m irror",
                          "https://user@mirror", "https://mirror#a"}) {
    environment.hf_endpoint = bad;
    EXPECT_FALSE(environment.Endpoint()) << bad;
  }
}

}  // namespace
}  // namespace sluice
