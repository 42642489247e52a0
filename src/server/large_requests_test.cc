// What one request can make the server hold or do: no more than it is large itself.
#include <ctime>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "server/server_testing.h"

namespace sluice {
namespace {

using testing::HasSubstr;

std::string Repeat(std::string_view text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) out += ",";
    out += text;
  }
  return out;
}

class LargeRequestsTest : public ServerTest {
 protected:
  void ExpectRefused(const std::string& path, const std::string& body, const char* words) {
    const ServerAnswer answer = Ask("POST", path, body);
    EXPECT_EQ(answer.status, 400);
    EXPECT_THAT(answer.body.substr(0, 1000), HasSubstr(words));
  }
  // Of the processor, which other programs do not change, for a body with so many more names.
  double WorkOf(const std::string& path, const std::string& begin, int names,
                const std::string& end) {
    std::string body = begin;
    for (int i = 0; i < names; ++i) body += fmt::format(R"(,"k{}":0)", i);
    body += end;
    const std::clock_t start = std::clock();
    EXPECT_NE(Ask("POST", path, body).status, 500);
    return static_cast<double>(std::clock() - start);
  }
};

TEST_F(LargeRequestsTest, NamesThatAreKeptManyTimesAreShort) {
  Start();
  const std::string most(1024, 'i'), more(1025, 'i');
  EXPECT_EQ(Complete(R"("request_id":")" + most + "\"").status, 200);
  EXPECT_EQ(Complete(R"("cache_salt":")" + most + "\"").status, 200);
  const std::string start = R"({"prompt":"The abacus",)";
  ExpectRefused("/v1/completions", start + R"("request_id":")" + more + "\"}",
                "request_id must have at most 1024 bytes, got 1025");
  ExpectRefused("/v1/completions", start + R"("cache_salt":")" + more + "\"}",
                "cache_salt must have at most 1024 bytes, got 1025");
  const std::string chat = R"({"messages":[{"role":"user","content":"beads"}]})";
  const ServerAnswer answer =
      Ask("POST", "/v1/chat/completions", chat, "X-Request-Id: " + more + "\r\n");
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("X-Request-Id must have at most 1024 bytes"));
}

TEST_F(LargeRequestsTest, ListsOfTokensAreKeptOnce) {
  Start();
  const std::string many = Repeat("5", 1000);
  const ServerAnswer answer = Ask(
      "POST", "/v1/completions",
      fmt::format(
          R"({{"prompt":["The abacus","The abacus"],"stop_token_ids":[{0}],)"
          R"("allowed_token_ids":[9,{0}],"logit_bias":{{"7":1," 7":2,"07":3}},"bad_words":["beads"]}})",
          many));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const std::vector<Request> requests = engine_.requests();
  ASSERT_EQ(requests.size(), 2u);
  const SamplingParams& first = requests[0].sampling;
  const SamplingParams& second = requests[1].sampling;
  EXPECT_THAT(first.stop_token_ids, testing::ElementsAre(5));
  EXPECT_THAT(*first.allowed_token_ids, testing::ElementsAre(5, 9));
  // Of several spellings the last counts, as in Python's dict.
  EXPECT_THAT(first.logit_bias, testing::ElementsAre(testing::Pair(7, 3.0f)));
  EXPECT_EQ(first.stop_token_ids.data(), second.stop_token_ids.data());
  EXPECT_EQ(first.allowed_token_ids->data(), second.allowed_token_ids->data());
  EXPECT_EQ(first.logit_bias.data(), second.logit_bias.data());
  EXPECT_EQ(first.bad_words.data(), second.bad_words.data());
}

TEST_F(LargeRequestsTest, DocumentsAreNotMultipliedWithoutABound) {
  Start();
  const std::string conversation = R"([{"role":"user","content":"beads"}])";
  const auto body = [&](size_t conversations, size_t bytes) {
    return fmt::format(R"({{"messages":[{}],"documents":[{{"text":"{}"}}]}})",
                       Repeat(conversation, conversations), std::string(bytes, 'd'));
  };
  EXPECT_EQ(Ask("POST", "/v1/chat/completions/batch", body(3, 10000)).status, 200);
  ExpectRefused("/v1/chat/completions/batch", body(1000, 70000), "for 1000 conversations");
}

// Ten times as many cost ten times as much; looked up one by one, seventy times or more.
TEST_F(LargeRequestsTest, ManyNamesCostWorkInProportion) {
  Start();
  const std::string hi = R"({"role":"user","content":"beads")";
  const auto growth = [&](const std::string& path, const std::string& begin,
                          const std::string& end) {
    const double few = WorkOf(path, begin, 20'000, end);
    return WorkOf(path, begin, 200'000, end) / few;
  };
  constexpr double kMost = 35;
  EXPECT_LT(growth("/v1/chat/completions/batch", R"({"messages":[[)" + hi + "}]]", "}"), kMost);
  EXPECT_LT(growth("/v1/chat/completions", R"({"messages":[)" + hi, "}]}"), kMost);
  EXPECT_LT(growth("/v1/chat/completions",
                   R"({"messages":[)" + hi + R"(}],"chat_template_kwargs":{"a":0)", "}}"),
            kMost);
}

TEST_F(LargeRequestsTest, WholeAnswersAreBounded) {
  ServerConfig config = DefaultConfig();
  config.max_answer_bytes = 100'000;
  Start(config);
  const std::string echo = R"("n":2,"echo":true,"logprobs":5,"stream":)";
  const ServerAnswer small = Complete(echo + "false");
  EXPECT_EQ(small.status, 200) << small.body;
  const std::string more = R"("n":2000,"echo":true,"logprobs":5,"stream":)";
  const ServerAnswer answer = Complete(more + "false");
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("The answer is larger than the 100000 bytes"));
  EXPECT_EQ(Complete(more + "true").status, 200);
  // What each choice of a chat repeats of the request.
  for (const char* stream : {"false", "true"}) {
    EXPECT_EQ(Chat(std::string(R"("return_token_ids":true,"n":2,"stream":)") + stream).status, 200);
    EXPECT_EQ(Chat(std::string(R"("return_token_ids":true,"n":2000,"stream":)") + stream).status,
              400);
  }
}

TEST_F(LargeRequestsTest, RefusalsAreShort) {
  Start();
  const std::string large(1 << 20, 'k');
  const ServerAnswer key = Complete(R"("logit_bias":{")" + large + R"(":"x"})");
  EXPECT_EQ(key.status, 400);
  EXPECT_THAT(key.body, HasSubstr("kkk...\""));
  EXPECT_LT(key.body.size(), 40'000u);
  // In the middle of no character.
  std::string words;
  for (int i = 0; i < 100'000; ++i) words += "\u00E9\u6F22";
  const ServerAnswer word = Complete(R"("bad_words":[")" + words + R"(",""])");
  EXPECT_EQ(word.status, 400);
  EXPECT_LT(word.body.size(), 40'000u);
  EXPECT_EQ(word.body.find("\uFFFD"), std::string::npos);
}

TEST_F(LargeRequestsTest, BracketsAreValues) {
  Start();
  const std::string nested = std::string(100, '[') + std::string(100, ']');
  ExpectRefused("/v1/completions", R"({"prompt":[)" + Repeat(nested, 11000) + "]}",
                "holds more than 1048576 JSON values");
}

}  // namespace
}  // namespace sluice
