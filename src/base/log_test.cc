#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log_format.h"
#include "base/log_output.h"

namespace sluice {
namespace {

TEST(LogTest, AMessageIsOneLine) {
  ::testing::internal::CaptureStderr();
  LOG_INFO("server", "request {} was\taborted", "a\nb\r\x1b[31m\x7f\u00E9");
  const std::string written = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(written, ::testing::EndsWith(
                           " INFO server request a\\nb\\x0d\\x1b[31m\\x7f\u00E9 was\taborted\n"));
}

TEST(LogTest, JsonIsOneObjectALine) {
  SetLogFormat(LogFormat::kJson);
  ::testing::internal::CaptureStderr();
  LOG_WARNING("server", "a \"{}\"", "b\n\x1b\xff");
  LogAlways("serve", "ready");
  const LogField fields[] = {{"text", "x"}, {"none", ""}, {"number", int64_t{5}}, {"time", 0.5}};
  const std::string line = FormatLogLine(LogLevel::kError, "access", "m", fields);
  const std::string written = ::testing::internal::GetCapturedStderr();
  SetLogFormat(LogFormat::kText);
  EXPECT_THAT(written, ::testing::StartsWith(R"({"ts":"20)"));
  EXPECT_THAT(written, ::testing::HasSubstr(
                           R"(Z","level":"warning","source":"server","message":"a \"b\n\u001b)"
                           "\uFFFD\\\"\"}\n"));
  EXPECT_THAT(written,
              ::testing::EndsWith(R"(Z","level":"info","source":"serve","message":"ready"})"
                                  "\n"));
  EXPECT_THAT(line, ::testing::EndsWith(R"("level":"error","source":"access","message":"m",)"
                                        R"("text":"x","number":5,"time":0.500000})"
                                        "\n"));
  EXPECT_THAT(FormatLogLine(LogLevel::kError, "access", "m", fields),
              ::testing::EndsWith("Z ERROR access m text=x number=5 time=0.500000\n"));
}

TEST(LogTest, NothingEndsALineForAnyReader) {
  const LogField fields[] = {{"error", "a \u2028b\u2029c\u0085\nd"}};
  EXPECT_THAT(FormatLogLine(LogLevel::kInfo, "access", "x\u2028y", fields),
              ::testing::EndsWith(R"(x\u2028y error="a \u2028b\u2029c\u0085\nd")"
                                  "\n"));
  SetLogFormat(LogFormat::kJson);
  EXPECT_THAT(FormatLogLine(LogLevel::kInfo, "access", "x\u2028y", fields),
              ::testing::EndsWith(R"("message":"x\u2028y","error":"a \u2028b\u2029c\u0085\nd"})"
                                  "\n"));
  SetLogFormat(LogFormat::kText);
}

TEST(LogTest, LinesThatScriptsWaitForHaveNoLevel) {
  SetLogLevel(LogLevel::kError);
  ::testing::internal::CaptureStderr();
  LOG_INFO("serve", "dropped");
  LogAlways("serve", "ready");
  const std::string written = ::testing::internal::GetCapturedStderr();
  SetLogLevel(LogLevel::kInfo);
  EXPECT_THAT(written, ::testing::EndsWith("Z INFO serve ready\n"));
  EXPECT_EQ(std::count(written.begin(), written.end(), '\n'), 1);
}

TEST(LogTest, DropsLinesThatNobodyReadsAndCountsThemLater) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int standard_error = dup(STDERR_FILENO);
  ASSERT_EQ(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 2000; ++i) LOG_INFO("server", "line {} {}", i, std::string(100, 'x'));
  const auto time = std::chrono::steady_clock::now() - start;
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  const auto read_all = [&] {
    std::string text;
    char buffer[4096];
    for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(n));
    return text;
  };
  const std::string before = read_all();
  LOG_INFO("server", "somebody reads again");
  LOG_INFO("server", "the last line");
  const std::string after = read_all();
  ASSERT_EQ(dup2(standard_error, STDERR_FILENO), STDERR_FILENO);
  for (const int fd : {ends[0], ends[1], standard_error}) close(fd);

  // The log waits 200 ms only once for 2000 lines; a wait for each line would take minutes.
  EXPECT_LT(time, std::chrono::seconds(60));
  EXPECT_THAT(before, ::testing::EndsWith("x\n")) << "whole lines";
  const auto taken = std::count(before.begin(), before.end(), '\n');
  EXPECT_THAT(after, ::testing::HasSubstr(" WARN log " + std::to_string(2000 - taken) +
                                          " lines of this log were dropped\n"));
  EXPECT_THAT(after, ::testing::HasSubstr("INFO server somebody reads again\n"));
  EXPECT_EQ(std::count(after.begin(), after.end(), '\n'), 3);
}

// A terminal reports that it is writable when it has room for less than a line.
TEST(LogTest, DoesNotWaitForATerminalThatNobodyReads) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  const int end = open(ptsname(terminal), O_WRONLY | O_NOCTTY);
  ASSERT_GE(end, 0);
  alarm(60);  // ends the test if a write blocks forever
  const std::string line = std::string(150, 'x') + "\n";
  int taken = 0;
  while (taken < 10000 && WriteLogText(end, line, std::chrono::milliseconds(10))) ++taken;
  alarm(0);
  close(end);
  close(terminal);
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken, 10000);
}

}  // namespace
}  // namespace sluice
