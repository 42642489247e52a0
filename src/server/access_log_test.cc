#include "server/access_log.h"

#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <string>
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

// What `work` makes the log write, of which `size` bytes are waited for: the log itself waits no
// longer than a second for its thread.
template <typename Work>
std::string Written(const ServerConfig& config, size_t size, Work work) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  {
    AccessLog log(config, ends[1]);
    work(log);
  }
  std::string text;
  pollfd readable{ends[0], POLLIN, 0};
  while (poll(&readable, 1, text.size() < size ? 120000 : 0) > 0) {
    char buffer[4096];
    const ssize_t count = read(ends[0], buffer, sizeof buffer);
    if (count <= 0) break;
    text.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  close(ends[1]);
  return text;
}

TEST(AccessLogTest, WritesAsUvicorn) {
  const std::string_view lines =
      "INFO:     127.0.0.1:5 - \"GET /health HTTP/1.1\" 200 OK\n"
      "INFO:     127.0.0.1:5 - \"GET /a%0Ab HTTP/1.1\" 404 Not Found\n";
  EXPECT_EQ(Written({}, lines.size(),
                    [](AccessLog& log) {
                      log.Add(Record("/health"));
                      log.Add(Record("/a\nb", 404));
                    }),
            lines);
}

TEST(AccessLogTest, CutsLongTargets) {
  HttpExchangeRecord record;
  const std::string target = "/" + std::string(1 << 20, 'a');
  record.client = "127.0.0.1:1";
  record.method = "GET";
  record.target = target;
  record.version = "1.1";
  record.status = 404;
  const std::string line = AccessLog({}).Line(record);
  EXPECT_LT(line.size(), 2200u);
  EXPECT_THAT(line, testing::EndsWith("aaa... HTTP/1.1\" 404 Not Found\n"));
}

TEST(AccessLogTest, ShowsNoKeys) {
  ServerConfig config;
  config.api_keys = {"sk-bead-0001"};
  const std::string target = "/" + std::string(2040, 'a') + "sk-bead-0001";
  for (const std::string& path : {std::string("/v1/models?api_key=sk-bead-0001"), target}) {
    EXPECT_THAT(AccessLog(config).Line(Record(path)), testing::Not(testing::HasSubstr("sk-b")));
  }
  EXPECT_EQ(AccessLog(config).Line(Record("/v1/models?api_key=sk-bead-0001", 401)),
            "INFO:     127.0.0.1:5 - \"GET /v1/models?api_key=*** HTTP/1.1\" 401 Unauthorized\n");
}

TEST(AccessLogTest, CanBeQuiet) {
  const std::string_view line = "INFO:     127.0.0.1:5 - \"GET /v1/models HTTP/1.1\" 200 OK\n";
  ServerConfig config;
  config.quiet_access_paths = {"/health"};
  EXPECT_EQ(Written(config, line.size(),
                    [](AccessLog& log) {
                      log.Add(Record("/health"));
                      log.Add(Record("/v1/models"));
                    }),
            line);
  config.disable_access_log = true;
  EXPECT_EQ(Written(config, 0, [](AccessLog& log) { log.Add(Record("/v1/models")); }), "");
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
