#include "server/access_log.h"

#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace sluice {
namespace {

AccessLog LogOf(const ServerConfig& config) {
  return {config, std::make_shared<ApiKeys>(config.api_keys)};
}

HttpExchangeRecord Record(std::string_view path, int status = 200) {
  HttpExchangeRecord record;
  record.client = "127.0.0.1:5";
  record.method = "GET";
  record.target = record.path = path;
  record.version = "1.1";
  record.status = status;
  return record;
}

// Returns the log's output during `work`. Waits until there are `size` bytes, because the log's
// destructor waits at most a second for the writing thread.
template <typename Work>
std::string Written(const ServerConfig& config, size_t size, Work work) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  {
    AccessLog log(config, std::make_shared<ApiKeys>(), ends[1]);
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

// Sets the style and the format of the log while a test runs.
class LogForm {
 public:
  explicit LogForm(LogStyle style, LogFormat format = LogFormat::kText) {
    SetLogStyle(style);
    SetLogFormat(format);
  }
  ~LogForm() {
    SetLogStyle(LogStyle::kSluice);
    SetLogFormat(LogFormat::kText);
  }
};

HttpExchangeRecord Answered(const AnswerNotes& notes) {
  HttpExchangeRecord record = Record("/v1/completions");
  record.method = "POST";
  record.seconds = 0.25;
  record.notes = &notes;
  return record;
}

const AnswerNotes kNotes = {.request_id = "cmpl-1",
                            .prompt_tokens = 5,
                            .completion_tokens = 7,
                            .cached_tokens = 4,
                            .finish_reason = "stop"};

HttpExchangeRecord Refused() {
  HttpExchangeRecord record = Record("/v1/completions", 404);
  record.request_id = "mine 1";
  record.error_body =
      R"({"error":{"message":"The model `x`\ndoes not exist.","type":"NotFoundError"}})";
  return record;
}

TEST(AccessLogTest, OneFormWithTheRestOfTheLog) {
  EXPECT_THAT(LogOf({}).Line(Answered(kNotes)),
              ::testing::MatchesRegex("20..-..-..T..:..:..\\....Z INFO access POST /v1/completions "
                                      "200 client=127.0.0.1:5 seconds=0.250000 request_id=cmpl-1 "
                                      "prompt_tokens=5 completion_tokens=7 cached_tokens=4 "
                                      "finish_reason=stop\n"));
  EXPECT_THAT(
      LogOf({}).Line(Refused()),
      ::testing::EndsWith(" WARN access GET /v1/completions 404 client=127.0.0.1:5 "
                          "seconds=0.000000 request_id=\"mine 1\" error=\"The model `x`\\ndoes "
                          "not exist.\"\n"));
}

TEST(AccessLogTest, OneJsonObjectALine) {
  const LogForm form(LogStyle::kVllm, LogFormat::kJson);
  const std::string line = LogOf({}).Line(Answered(kNotes));
  const auto object = json::Parse(line);
  ASSERT_TRUE(object) << line;
  EXPECT_THAT(line, ::testing::EndsWith(
                        R"("level":"info","source":"access","message":"POST /v1/completions 200",)"
                        R"("method":"POST","path":"/v1/completions","status":200,)"
                        R"("client":"127.0.0.1:5","seconds":0.250000,"request_id":"cmpl-1",)"
                        R"("prompt_tokens":5,"completion_tokens":7,"cached_tokens":4,)"
                        R"("finish_reason":"stop"})"
                        "\n"));
  const auto refused = json::Parse(LogOf({}).Line(Refused()));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->Find("error")->as_string(), "The model `x`\ndoes not exist.");
  EXPECT_EQ(refused->Find("level")->as_string(), "warning");
}

TEST(AccessLogTest, ReasonsOfEveryShape) {
  const auto reason = [](std::string_view body) {
    HttpExchangeRecord record = Record("/", 400);
    record.error_body = body;
    const std::string line = LogOf({}).Line(record);
    return line.substr(line.find(" error="));
  };
  EXPECT_EQ(reason(R"({"detail":"Not Found"})"), " error=\"Not Found\"\n");
  EXPECT_EQ(reason(R"({"error":"Unauthorized"})"), " error=Unauthorized\n");
  EXPECT_EQ(reason(R"({"object":"error","message":"bad"})"), " error=bad\n");
  EXPECT_EQ(reason(R"({"error":{"message":"cut)"),
            " error=\"{\\\"error\\\":{\\\"message\\\":\\\"cut\"\n");
  EXPECT_LT(reason("{" + std::string(2000, 'x')).size(), 520u);
}

TEST(AccessLogTest, AProbeOfAServerThatIsNotReadyIsNoError) {
  const auto level = [](int status) {
    const std::string line = LogOf({}).Line(Record("/ready", status));
    const size_t begin = line.find(' ') + 1;
    return line.substr(begin, line.find(' ', begin) - begin);
  };
  EXPECT_EQ(level(200), "INFO");
  EXPECT_EQ(level(503), "WARN");
  EXPECT_EQ(level(500), "ERROR");
}

TEST(AccessLogTest, WritesAsUvicornUnderOtherNames) {
  const LogForm form(LogStyle::kVllm);
  EXPECT_THAT(
      LogOf({}).Line(Refused()),
      ::testing::MatchesRegex("INFO:     127.0.0.1:5 - \"GET /v1/completions HTTP/1.1\" 404 Not "
                              "Found\n\\(APIServer pid=[0-9]+\\) WARNING .* \\[access\\] GET "
                              "/v1/completions 404 request_id=\"mine 1\" error=.*\n"));
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
  const LogForm form(LogStyle::kVllm);
  HttpExchangeRecord record;
  const std::string target = "/" + std::string(1 << 20, 'a');
  record.client = "127.0.0.1:1";
  record.method = "GET";
  record.target = target;
  record.version = "1.1";
  record.status = 404;
  const std::string line = LogOf({}).Line(record);
  EXPECT_LT(line.size(), 2200u);
  EXPECT_THAT(line, ::testing::EndsWith("aaa... HTTP/1.1\" 404 Not Found\n"));
}

TEST(AccessLogTest, ShowsNoKeys) {
  const LogForm form(LogStyle::kVllm);
  ServerConfig config;
  config.api_keys = {"sk-bead-0001"};
  const std::string target = "/" + std::string(2040, 'a') + "sk-bead-0001";
  for (const std::string& path : {std::string("/v1/models?api_key=sk-bead-0001"), target}) {
    EXPECT_THAT(LogOf(config).Line(Record(path)), ::testing::Not(::testing::HasSubstr("sk-b")));
  }
  EXPECT_EQ(LogOf(config).Line(Record("/v1/models?api_key=sk-bead-0001", 401)),
            "INFO:     127.0.0.1:5 - \"GET /v1/models?api_key=*** HTTP/1.1\" 401 Unauthorized\n");
}

TEST(AccessLogTest, CanBeQuiet) {
  const LogForm form(LogStyle::kVllm);
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

// No process reads the pipe: lines are dropped, and the threads that add them and the destructor do
// not block.
TEST(AccessLogTest, DoesNotBlockOnAFullPipe) {
  std::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    const LogForm form(LogStyle::kVllm);
    AccessLog log({}, std::make_shared<ApiKeys>(), ends[1]);
    for (size_t i = 0; i < 4 * AccessLog::kMaxWaiting; ++i) log.Add(Record("/health"));
  }
  char buffer[64];
  ASSERT_GT(read(ends[0], buffer, sizeof buffer), 20);
  EXPECT_TRUE(std::string_view(buffer, 20).starts_with("INFO:     127.0.0.1"));
  close(ends[0]);  // The thread that is blocked writing to the other end still uses it.
}

}  // namespace
}  // namespace sluice
