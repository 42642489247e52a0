#include "server/api/guard/client_limits.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class ClientLimitsTest : public ::testing::Test {
 protected:
  void Start(const ClientLimits::Limits& limits) {
    limits_ = std::make_shared<ClientLimits>(limits, [this] { return now_; });
  }
  void Pass(double seconds) {
    now_ += std::chrono::duration_cast<ClientLimits::Clock::duration>(
        std::chrono::duration<double>(seconds));
  }
  std::map<std::string, std::string> Headers(uint64_t client) {
    std::vector<HttpHeader> headers;
    limits_->AppendHeaders(client, headers);
    std::map<std::string, std::string> result;
    for (const HttpHeader& header : headers) result[header.name] = header.value;
    return result;
  }

  ClientLimits::Clock::time_point now_{};
  std::shared_ptr<ClientLimits> limits_;
};

TEST_F(ClientLimitsTest, RequestsAMinuteFillUpEvenly) {
  Start({.requests_per_minute = 6});
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(limits_->Enter(1)) << i;
  const auto refused = limits_->Enter(1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 429);
  EXPECT_EQ(refused.error().retry_after, 10);
  EXPECT_THAT(refused.error().message, HasSubstr("limit 6 a minute"));
  EXPECT_TRUE(limits_->Enter(2)) << "another client";
  Pass(9.9);
  EXPECT_FALSE(limits_->Enter(1));
  Pass(0.2);
  EXPECT_TRUE(limits_->Enter(1));
  EXPECT_FALSE(limits_->Enter(1));
}

TEST_F(ClientLimitsTest, HeadersAreThoseOfOpenAi) {
  Start({.requests_per_minute = 6, .tokens_per_minute = 600});
  const auto ticket = limits_->Enter(1);
  (*ticket)->TakeTokens(250);
  EXPECT_THAT(Headers(1), UnorderedElementsAre(Pair("x-ratelimit-limit-requests", "6"),
                                               Pair("x-ratelimit-remaining-requests", "5"),
                                               Pair("x-ratelimit-reset-requests", "10s"),
                                               Pair("x-ratelimit-limit-tokens", "600"),
                                               Pair("x-ratelimit-remaining-tokens", "350"),
                                               Pair("x-ratelimit-reset-tokens", "25s")));
  Start({.tokens_per_minute = 600});
  EXPECT_EQ(Headers(1).size(), 3u);
}

TEST_F(ClientLimitsTest, TokensAreKnownLateAndPaidBack) {
  Start({.tokens_per_minute = 60});
  const auto first = limits_->Enter(1);
  (*first)->TakeTokens(90);
  EXPECT_EQ(Headers(1)["x-ratelimit-remaining-tokens"], "0");
  EXPECT_EQ(limits_->Enter(1).error().retry_after, 31);
  Pass(30.5);
  EXPECT_TRUE(limits_->Enter(1));
}

TEST_F(ClientLimitsTest, ARequestIsRunningUntilItsAnswerIsComplete) {
  Start({.concurrent_requests = 2});
  const auto a = limits_->Enter(1), b = limits_->Enter(1);
  EXPECT_FALSE(limits_->Enter(1));
  (*a)->Leave();
  EXPECT_TRUE(limits_->Enter(1)) << "entered and left";
  {
    const auto c = limits_->Enter(1);
    EXPECT_TRUE(c);
    EXPECT_FALSE(limits_->Enter(1));
  }
  EXPECT_TRUE(limits_->Enter(1));
}

TEST_F(ClientLimitsTest, WhatGoesOnBehindItsAnswerIsRunning) {
  Start({.concurrent_requests = 1});
  const auto ticket = limits_->Enter(1);
  (*ticket)->Stay();
  (*ticket)->Leave();
  EXPECT_FALSE(limits_->Enter(1));
  (*ticket)->Leave();
  (*ticket)->Leave();  // a second Leave() has no effect
  EXPECT_TRUE(limits_->Enter(1));
}

TEST_F(ClientLimitsTest, IdleClientsAreForgottenTheLongestIdleFirst) {
  Start({.requests_per_minute = 1, .concurrent_requests = 1});
  const auto busy = limits_->Enter(1);
  limits_->Enter(2);
  for (uint64_t i = 0; i < 3 * ClientLimits::kMaxIdleClients; ++i) limits_->Enter(100 + i);
  EXPECT_EQ(limits_->num_clients(), ClientLimits::kMaxIdleClients + 1);
  EXPECT_FALSE(limits_->Enter(1)) << "busy ones are not forgotten";
  EXPECT_TRUE(limits_->Enter(2)) << "forgotten";
  EXPECT_FALSE(limits_->Enter(100 + 3 * ClientLimits::kMaxIdleClients - 1)) << "remembered";
}

TEST(DurationText, IsShort) {
  EXPECT_EQ(DurationText(0), "0ms");
  EXPECT_EQ(DurationText(0.0125), "13ms");
  EXPECT_EQ(DurationText(59.2), "1m0s");
  EXPECT_EQ(DurationText(12), "12s");
  EXPECT_EQ(DurationText(3725), "1h2m5s");
}

}  // namespace
}  // namespace sluice
