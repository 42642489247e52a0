#include "server/access_log.h"

#include <unistd.h>

#include <csignal>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

HttpExchangeRecord Record(std::string_view path, int status = 200) {
  HttpExchangeRecord record;
  record.client = "127.0.0.1:5";
  record.method = "GET";
  record.target = record.path = path;
  record.version = "1.1";
  record.status = status;
  return record;
}

// What `work` makes the log write.
template <typename Work>
std::string Written(const ServerConfig& config, Work work) {
  testing::internal::CaptureStdout();
  {
    AccessLog log(config);
    work(log);
  }
  return testing::internal::GetCapturedStdout();
}

TEST(AccessLogTest, WritesAsUvicorn) {
  EXPECT_EQ(Written({},
                    [](AccessLog& log) {
                      log.Add(Record("/health"));
                      log.Add(Record("/a\nb", 404));
                    }),
            "INFO:     127.0.0.1:5 - \"GET /health HTTP/1.1\" 200 OK\n"
            "INFO:     127.0.0.1:5 - \"GET /a%0Ab HTTP/1.1\" 404 Not Found\n");
}

TEST(AccessLogTest, CanBeQuiet) {
  ServerConfig config;
  config.quiet_access_paths = {"/health"};
  EXPECT_EQ(Written(config,
                    [](AccessLog& log) {
                      log.Add(Record("/health"));
                      log.Add(Record("/v1/models"));
                    }),
            "INFO:     127.0.0.1:5 - \"GET /v1/models HTTP/1.1\" 200 OK\n");
  config.disable_access_log = true;
  EXPECT_EQ(Written(config, [](AccessLog& log) { log.Add(Record("/v1/models")); }), "");
}

// Nobody reads the pipe: lines are dropped, and neither who adds them nor the end is held up.
TEST(AccessLogTest, DoesNotBlockOnAFullPipe) {
  std::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    AccessLog log({}, ends[1]);
    for (size_t i = 0; i < 4 * AccessLog::kMaxWaiting; ++i) log.Add(Record("/health"));
  }
  char buffer[64];
  ASSERT_GT(read(ends[0], buffer, sizeof buffer), 20);
  EXPECT_TRUE(std::string_view(buffer, 20).starts_with("INFO:     127.0.0.1"));
  close(ends[0]);  // The other end belongs to the thread that is stuck in it.
}

}  // namespace
}  // namespace sluice
