#include "base/json_file.h"

#include <unistd.h>

#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

class JsonFileTest : public ::testing::Test {
 protected:
  ~JsonFileTest() override { std::filesystem::remove(file_); }
  Result<json::Value> Read(const std::string& text) {
    std::ofstream(file_) << text;
    return ReadJsonObject(file_);
  }
  const std::filesystem::path file_ =
      std::filesystem::path(::testing::TempDir()) / fmt::format("json_file_{}.json", getpid());
};

TEST_F(JsonFileTest, TakesTheNumbersOfPythonThatAreNotFinite) {
  const auto object = Read(R"({"a": -Infinity, "b": [NaN, "NaN \" Infinity"], "c": 1.5})");
  ASSERT_TRUE(object) << object.error().message;
  EXPECT_EQ(json::Write(*object), R"({"a":"-Infinity","b":["NaN","NaN \" Infinity"],"c":1.5})");
}

TEST_F(JsonFileTest, NamesWhatIsNoObject) {
  EXPECT_EQ(ReadJsonObject(file_).error().code, ErrorCode::kNotFound);
  const auto list = Read("[1]");
  ASSERT_FALSE(list);
  EXPECT_EQ(list.error().code, ErrorCode::kInvalidData);
  EXPECT_EQ(list.error().param, file_.filename().string());
  EXPECT_THAT(list.error().message, HasSubstr("must be a JSON object, found an array"));
  const auto cut = Read(R"({"a": )");
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, ErrorCode::kInvalidData);
  EXPECT_THAT(cut.error().message, HasSubstr(file_.string()));
}

}  // namespace
}  // namespace sluice
