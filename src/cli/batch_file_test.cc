#include "cli/batch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <new>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "base/file.h"
#include "base/work_budget.h"

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
      {"{", "not JSON"},
      {"[]", "not a JSON object"},
      {R"({"method":"POST"})", "custom_id"},
      {R"({"custom_id":"a","method":"GET"})", "method: expected POST, found 'GET'"},
      {R"({"custom_id":"a","method":"POST","url":"/v1/models"})", "found '/v1/models'"},
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

class BatchFolder : public ::testing::Test {
 protected:
  BatchFolder() { std::filesystem::create_directories(folder_); }
  ~BatchFolder() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / fmt::format("sluice_batch_file_test-{}", getpid());
};

TEST_F(BatchFolder, AnswersComeInTheOrderOfTheLines) {
  {
    std::ofstream in(folder_ / "in.jsonl");
    for (int i = 0; i < 200; ++i) in << i << "\n\n";
  }
  const auto totals = RunBatchFile(folder_ / "in.jsonl", folder_ / "out.jsonl", 8,
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
  EXPECT_EQ(*ReadFile(folder_ / "out.jsonl", 1 << 20), expected);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out.jsonl.part"));
}

TEST_F(BatchFolder, InputThatCannotBeReadIsNoEmptyBatch) {
  const auto answer = [](const std::string&, bool&) { return std::string(); };
  const auto out = folder_ / "out.jsonl";
  EXPECT_EQ(RunBatchFile(folder_ / "none", out, 1, answer).error().code, ErrorCode::kNotFound);
  const auto of_folder = RunBatchFile(folder_, out, 2, answer);
  ASSERT_FALSE(of_folder);
  EXPECT_EQ(of_folder.error().code, ErrorCode::kInvalidData);
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(BatchFolder, AFullDiskEndsTheWorkAtOnce) {
  constexpr int kLines = 5000;
  {
    std::ofstream in(folder_ / "in.jsonl");
    for (int i = 0; i < kLines; ++i) in << i << "\n";
  }
  std::filesystem::create_symlink("/dev/full", folder_ / "out.jsonl.part");
  std::atomic<int> answered = 0;
  const auto totals =
      RunBatchFile(folder_ / "in.jsonl", folder_ / "out.jsonl", 2, [&](const std::string&, bool&) {
        ++answered;
        return std::string(1000, 'x');
      });
  ASSERT_FALSE(totals);
  EXPECT_THAT(totals.error().message, HasSubstr("writing the answers failed"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out.jsonl"));
  // After the failed write, no more lines are answered than fit into file buffers.
  EXPECT_LT(answered, kLines / 2);
}

// Lets the calling thread allocate nothing from now on.
void RunOutOfMemory() {
  static thread_local std::optional<WorkBudget> budget;
  budget.emplace(WorkLimits{.cpu_seconds = 1e9, .bytes = 0});
}

TEST_F(BatchFolder, WithoutMemoryEachLineGetsAnError) {
  std::ofstream(folder_ / "in.jsonl") << "1\n2\n3\n";
  const auto totals = RunBatchFile(folder_ / "in.jsonl", folder_ / "out.jsonl", 2,
                                   [](const std::string&, bool&) -> std::string {
                                     RunOutOfMemory();
                                     throw std::bad_alloc();
                                   });
  ASSERT_TRUE(totals) << totals.error().message;
  EXPECT_EQ(totals->requests, 3);
  EXPECT_EQ(totals->failed, 3);
  const std::string text = *ReadFile(folder_ / "out.jsonl", 1 << 20);
  EXPECT_EQ(std::ranges::count(text, '\n'), 3);
  EXPECT_THAT(text, HasSubstr("out of memory"));
}

TEST_F(BatchFolder, ALineThatMemoryHasNoRoomForIsNotPassedOver) {
  std::ofstream(folder_ / "in.jsonl") << "1\n" << std::string(1000, '2') << "\n3\n";
  const auto totals =
      RunBatchFile(folder_ / "in.jsonl", folder_ / "out.jsonl", 1, [](const std::string&, bool&) {
        RunOutOfMemory();
        return std::string("x");
      });
  ASSERT_FALSE(totals);
  EXPECT_EQ(totals.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(totals.error().message, HasSubstr("while line 2 was read"));
  EXPECT_EQ(*ReadFile(folder_ / "out.jsonl.part", 1 << 20), "x\n");
}

// Reading a device must end: time and memory are limited.
TEST_F(BatchFolder, ALineWithoutAnEndEndsTheRun) {
  const auto totals = RunBatchFile("/dev/zero", folder_ / "out.jsonl", 2,
                                   [](const std::string&, bool&) { return std::string("{}"); });
  ASSERT_FALSE(totals);
  EXPECT_EQ(totals.error().code, ErrorCode::kInvalidData);
  EXPECT_THAT(totals.error().message, HasSubstr("/dev/zero: line 1 has more than 67108864 bytes"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out.jsonl"));
}

// Answers are written through a link into its target. The same code handles devices, but only the
// superuser could replace a device by a rename, so the test uses a link.
TEST_F(BatchFolder, AnswersGoThroughALink) {
  std::ofstream(folder_ / "in.jsonl") << "x\n";
  std::ofstream(folder_ / "target").close();
  std::filesystem::create_symlink("target", folder_ / "out.jsonl");
  ASSERT_TRUE(RunBatchFile(folder_ / "in.jsonl", folder_ / "out.jsonl", 1,
                           [](const std::string&, bool&) { return std::string("answer"); }));
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "out.jsonl"));
  EXPECT_EQ(*ReadFile(folder_ / "target"), "answer\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out.jsonl.part"));
}

}  // namespace
}  // namespace sluice::cli
