#include "cli/batch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fmt/format.h>

#include "base/file.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;

TEST(BatchFile, RequestsAreChecked) {
  BatchRequest request;
  ASSERT_TRUE(ParseBatchRequest(
      R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x"}})",
      request));
  EXPECT_EQ(request.custom_id, "a");
  EXPECT_EQ(request.path, "/v1/completions");
  EXPECT_EQ(request.body, R"({"prompt":"x"})");
  const std::pair<const char*, const char*> cases[] = {
      {"{", "no JSON"},
      {"[]", "no JSON object"},
      {R"({"method":"POST"})", "custom_id"},
      {R"({"custom_id":"a","method":"GET"})", "method: expected POST, found 'GET'"},
      {R"({"custom_id":"a","method":"POST","url":"/v1/score"})", "found '/v1/score'"},
      {R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":3})", "body: expected"},
      {R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"stream":true}})",
       "no streams"},
  };
  for (const auto& [line, message] : cases) {
    const Status status = ParseBatchRequest(line, request);
    ASSERT_FALSE(status) << line;
    EXPECT_THAT(status.error().message, HasSubstr(message));
  }
}

TEST(BatchFile, AnswersHaveTheShapeOfTheBatchApi) {
  const json::Value good = *json::Parse(BatchAnswer("a", 200, *json::Parse(R"({"x":1})")));
  EXPECT_EQ(good.Find("custom_id")->as_string(), "a");
  EXPECT_EQ(good.Find("response")->Find("status_code")->as_integer(), 200);
  EXPECT_EQ(good.Find("response")->Find("body")->Find("x")->as_integer(), 1);
  EXPECT_TRUE(good.Find("error")->is_null());
  const json::Value bad = *json::Parse(BatchError("b", 400, "why"));
  EXPECT_TRUE(bad.Find("response")->Find("body")->is_null());
  EXPECT_EQ(bad.Find("error")->Find("error")->Find("message")->as_string(), "why");
}

TEST(BatchFile, AnswersComeInTheOrderOfTheLines) {
  const auto folder = std::filesystem::temp_directory_path() / "sluice_batch_file_test";
  std::filesystem::create_directories(folder);
  {
    std::ofstream in(folder / "in.jsonl");
    for (int i = 0; i < 200; ++i) in << i << "\n\n";
  }
  const auto totals = RunBatchFile(folder / "in.jsonl", folder / "out.jsonl", 8,
                                   [](const std::string& line, bool& failed) {
                                     const int number = std::stoi(line);
                                     if (number % 16 == 0)
                                       std::this_thread::sleep_for(std::chrono::milliseconds(2));
                                     failed = number % 2 == 1;
                                     return "<" + line + ">";
                                   });
  ASSERT_TRUE(totals) << totals.error().message;
  EXPECT_EQ(totals->requests, 200);
  EXPECT_EQ(totals->failed, 100);
  std::string expected;
  for (int i = 0; i < 200; ++i) expected += fmt::format("<{}>\n", i);
  EXPECT_EQ(*ReadFile(folder / "out.jsonl", 1 << 20), expected);
  EXPECT_FALSE(std::filesystem::exists(folder / "out.jsonl.part"));
  EXPECT_EQ(RunBatchFile(folder / "none", folder / "o", 1, {}).error().code, ErrorCode::kNotFound);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sluice::cli
