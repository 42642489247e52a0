#include "eval/eval_client.h"

#include <atomic>
#include <latch>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/client_testing.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Answers requests concurrently, each on its own connection.
class AnsweringServer {
 public:
  using Answer = std::function<std::pair<int, std::string>(const std::string& request)>;
  explicit AnsweringServer(Answer answer) : answer_(std::move(answer)) {
    listener_ = ListenAt(&url_, 64);
    thread_ = std::thread([this] {
      std::vector<std::jthread> threads;
      while (true) {
        const int client = accept(listener_, nullptr, nullptr);
        if (client < 0) return;
        threads.emplace_back([this, client] { Talk(client); });
      }
    });
  }
  ~AnsweringServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  const Url& url() const { return url_; }

 private:
  void Talk(int client) {
    std::string request;
    char bytes[4096];
    while (!request.ends_with('}')) {
      const ssize_t got = recv(client, bytes, sizeof(bytes), 0);
      if (got <= 0) break;
      request.append(bytes, static_cast<size_t>(got));
    }
    const auto [status, body] = answer_(request);
    const std::string text =
        "HTTP/1.1 " + std::to_string(status) +
        " X\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
        "\r\n\r\n" + body;
    send(client, text.data(), text.size(), MSG_NOSIGNAL);
    close(client);
  }

  const Answer answer_;
  int listener_;
  Url url_;
  std::thread thread_;
};

std::vector<json::Value> Prompts(std::initializer_list<std::string_view> texts) {
  std::vector<json::Value> prompts;
  for (std::string_view text : texts) prompts.emplace_back(text);
  return prompts;
}

EvalRequestOptions Options(int num_concurrent, int max_retries) {
  EvalRequestOptions options;
  options.num_concurrent = num_concurrent;
  options.max_retries = max_retries;
  return options;
}

void NoProgress(int64_t, int64_t) {}

bool Asks(const std::string& request, std::string_view prompt) {
  return request.find("\"prompt\":\"" + std::string(prompt) + "\"") != std::string::npos;
}

TEST(AskPrompts, AnswersComeInTheOrderOfThePrompts) {
  std::latch both(2);
  const AnsweringServer server([&](const std::string& request) {
    both.arrive_and_wait();  // returns only once both requests have arrived
    return std::pair(200, std::string(Asks(request, "one") ? R"({"choices":[{"text":"1"}]})"
                                                           : R"({"choices":[{"text":"2"}]})"));
  });
  const auto answers =
      AskPrompts(HttpClient(server.url()), Prompts({"one", "two"}), Options(2, 0), NoProgress);
  ASSERT_TRUE(answers) << answers.error().message;
  EXPECT_THAT(*answers, ElementsAre("1", "2"));
}

TEST(AskPrompts, WhatPassesIsTriedAgain) {
  std::atomic<int> asked = 0;
  const AnsweringServer server([&](const std::string&) {
    return ++asked < 3 ? std::pair(503, std::string("{}"))
                       : std::pair(200, std::string(R"({"choices":[{"text":"1"}]})"));
  });
  const HttpClient client(server.url());
  EXPECT_FALSE(AskPrompts(client, Prompts({"one"}), Options(1, 1), NoProgress));
  EXPECT_EQ(asked, 2);
  EXPECT_TRUE(AskPrompts(client, Prompts({"one"}), Options(1, 0), NoProgress));
}

// A failed run does not wait for the retries of its other requests.
TEST(AskPrompts, TheFirstFailureEndsTheOthersRetries) {
  std::atomic<int> passing = 0;
  std::latch tried(1);
  const AnsweringServer server([&](const std::string& request) {
    if (Asks(request, "bad")) {
      tried.wait();
      return std::pair(400, std::string(R"({"error":{"message":"no such thing"}})"));
    }
    if (++passing == 1) tried.count_down();
    // 503 for half a minute of retries, then success, so that a run that does not stop also ends.
    return passing < 10 ? std::pair(503, std::string("{}"))
                        : std::pair(200, std::string(R"({"choices":[{"text":"1"}]})"));
  });
  const auto answers =
      AskPrompts(HttpClient(server.url()), Prompts({"bad", "good"}), Options(2, 1000), NoProgress);
  ASSERT_FALSE(answers);
  EXPECT_THAT(answers.error().message,
              HasSubstr("question 1: the server answered with 400: no such"));
  EXPECT_LT(passing, 10);
}

TEST(AskPrompts, TheTimeOutIsThatOfTheWholeRequest) {
  // No thread accepts the connection.
  Url url;
  const int listener = ListenAt(&url, 8);
  EvalRequestOptions options = Options(1, 0);
  options.timeout_seconds = 0.05;
  const auto answers = AskPrompts(HttpClient(url), Prompts({"one"}), options, NoProgress);
  close(listener);
  ASSERT_FALSE(answers);
  EXPECT_THAT(answers.error().message, HasSubstr("no answer in 0.05 s"));
}

}  // namespace
}  // namespace sluice
