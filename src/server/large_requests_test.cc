// One request must not make the server hold memory or do work out of proportion to its size.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json_count.h"
#include "server/server_testing.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

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
  // Returns the number of name comparisons for a body with `names` additional names.
  uint64_t WorkOf(const std::string& path, const std::string& begin, int names,
                  const std::string& end) {
    std::string body = begin;
    for (int i = 0; i < names; ++i) body += fmt::format(R"(,"k{}":0)", i);
    body += end;
    const uint64_t before = json::NumNamesCompared();
    EXPECT_NE(Ask("POST", path, body).status, 500);
    return json::NumNamesCompared() - before;
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
  EXPECT_THAT(first.stop_token_ids, ::testing::ElementsAre(5));
  EXPECT_THAT(*first.allowed_token_ids, ::testing::ElementsAre(5, 9));
  // If a key is given in several spellings, the last counts, as in Python's dict.
  EXPECT_THAT(first.logit_bias, ::testing::ElementsAre(::testing::Pair(7, 3.0f)));
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

// Each name is compared with a few known names, not with all other names of the body.
TEST_F(LargeRequestsTest, ManyNamesCostWorkInProportion) {
  Start();
  const std::string hi = R"({"role":"user","content":"beads")";
  constexpr int kNames = 20'000;
  constexpr uint64_t kMost = uint64_t{kNames} * 300;
  EXPECT_LT(WorkOf("/v1/chat/completions/batch", R"({"messages":[[)" + hi + "}]]", kNames, "}"),
            kMost);
  EXPECT_LT(WorkOf("/v1/chat/completions", R"({"messages":[)" + hi, kNames, "}]}"), kMost);
  EXPECT_LT(WorkOf("/v1/chat/completions",
                   R"({"messages":[)" + hi + R"(}],"chat_template_kwargs":{"a":0)", kNames, "}}"),
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
  EXPECT_THAT(answer.body, HasSubstr("The answer exceeds this server's limit of 100000 bytes"));
  EXPECT_EQ(Complete(more + "true").status, 200);
  // Each choice of a chat repeats the request's tokens.
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
  // A quoted text is never cut within a character.
  std::string words;
  for (int i = 0; i < 100'000; ++i) words += "\u00E9\u6F22";
  const ServerAnswer word = Complete(R"("bad_words":[")" + words + R"(",""])");
  EXPECT_EQ(word.status, 400);
  EXPECT_LT(word.body.size(), 40'000u);
  EXPECT_EQ(word.body.find("\uFFFD"), std::string::npos);
}

TEST_F(LargeRequestsTest, WhatRequestsHoldIsTakenFromTheirMemory) {
  engine_.mutable_info().request_memory_bytes = 8'000'000;
  Start();
  const auto metric = [&](const std::string& name) {
    const std::string text = Ask("GET", "/metrics").body;
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  };
  EXPECT_EQ(metric("sluice:request_memory_bytes"), 8'000'000);
  // The body fits, but not the data derived from it.
  for (const char* path : {"/tokenize", "/v1/completions"}) {
    const ServerAnswer large =
        Ask("POST", path, R"({"prompt":")" + std::string(2'000'000, 'x') + "\"}");
    EXPECT_EQ(large.status, 413) << large.body;
    EXPECT_THAT(large.body, HasSubstr("--request-memory-bytes"));
  }
  const ServerAnswer values =
      Ask("POST", "/v1/completions", R"({"prompt":"a","x":[)" + Repeat("1", 100'000) + "]}");
  EXPECT_EQ(values.status, 413) << values.body;
  // Each sequence has its own state, which takes memory.
  const ServerAnswer wide = Complete(R"("n":10000)");
  EXPECT_EQ(wide.status, 413) << wide.body;
  EXPECT_EQ(metric("sluice:request_memory_refusals_total"), 4);
  EXPECT_EQ(Complete(R"("max_tokens":2)").status, 200);
  EXPECT_TRUE(Eventually([&] { return metric("sluice:request_memory_used_bytes") < 10'000; }));
}

TEST_F(LargeRequestsTest, TokenizingIsBoundedAsPromptsAre) {
  Start();
  const auto tokenize = [&](size_t characters) {
    return Ask("POST", "/tokenize",
               R"({"return_token_strs":true,"prompt":")" + std::string(characters, 'x') + "\"}");
  };
  EXPECT_EQ(tokenize(2000).status, 200) << "more than the context, but it could have fitted";
  const ServerAnswer refused = tokenize(1'000'000);
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("your prompt contains 1000000 characters"));
}

TEST_F(LargeRequestsTest, BracketsAreValues) {
  Start();
  const std::string nested = std::string(100, '[') + std::string(100, ']');
  ExpectRefused("/v1/completions", R"({"prompt":[)" + Repeat(nested, 11000) + "]}",
                "contains more than 1048576 JSON values");
}

}  // namespace
}  // namespace sluice
