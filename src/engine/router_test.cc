#include "engine/router.h"

#include <numeric>

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr int kBlock = 4;

Request RequestOf(std::vector<int32_t> tokens, int64_t max_tokens = 1) {
  Request request;
  request.prompt = std::move(tokens);
  request.sampling.max_tokens = max_tokens;
  return request;
}

// Returns tokens `first`, `first` + 1, ...
std::vector<int32_t> Count(int32_t first, size_t length) {
  std::vector<int32_t> tokens(length);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

constexpr bool kAll[] = {true, true, true};

TEST(Router, EqualsTakeTurns) {
  Router router(3, kBlock, 64);
  for (const int engine : {0, 1, 2, 0, 1, 2}) {
    const Router::Route route = router.Choose(RequestOf({engine, 1, 2, 3}), kAll);
    EXPECT_EQ(route.engine, engine);
    router.Finish(route.engine, route.tokens());
  }
}

TEST(Router, TheOneWithTheFewestUnfinishedTokensIsChosen) {
  Router router(3, kBlock, 0);
  const Router::Route large = router.Choose(RequestOf(Count(0, 100), 50), kAll);
  EXPECT_EQ(large.tokens(), 150);
  EXPECT_EQ(router.unfinished_tokens(0), 150);
  EXPECT_EQ(router.Choose(RequestOf(Count(0, 10), 20), kAll).engine, 1);
  EXPECT_EQ(router.Choose(RequestOf(Count(0, 10), 10), kAll).engine, 2);
  EXPECT_EQ(router.Choose(RequestOf(Count(0, 10), 200), kAll).engine, 2) << "20 tokens, not 30";
  EXPECT_EQ(router.Choose(RequestOf(Count(0, 10), 1), kAll).engine, 1);
  router.Finish(0, 149);
  EXPECT_EQ(router.Choose(RequestOf(Count(0, 10), 1), kAll).engine, 0);
}

TEST(Router, OfAnAnswerOnlySoMuchIsExpected) {
  Router router(3, kBlock, 0);
  Request request = RequestOf({1, 2}, 1 << 20);
  request.num_sequences = 2;
  EXPECT_EQ(router.Choose(request, kAll).output_tokens, 2 * Router::kExpectedTokens);
}

TEST(Router, ARequestGoesWhereItsPrefixIsUnlessThatIsMuchBusier) {
  Router router(3, kBlock, 64);
  const Router::Route first = router.Choose(RequestOf(Count(0, 42)), kAll);
  router.Finish(first.engine, first.tokens());
  EXPECT_EQ(first.engine, 0);
  // A prompt with the same beginning and another end.
  std::vector<int32_t> tokens = Count(0, 36);
  tokens.resize(50, 7);
  const Router::Route again = router.Choose(RequestOf(tokens), kAll);
  EXPECT_EQ(again.engine, 0) << "though it is the turn of the next";
  EXPECT_EQ(again.prompt_tokens, 50 - 36);
  router.Finish(again.engine, again.tokens());
  // 42 tokens were routed to the engine; the blocks with the first 40 are in its cache.
  const Router::Route busy = router.Choose(RequestOf({1}, 39), kAll);
  EXPECT_EQ(busy.engine, 1);
  const Router::Route other = router.Choose(RequestOf({1}, 41), kAll);
  EXPECT_EQ(other.engine, 2);
  const Router::Route own = router.Choose(RequestOf({1}, 38), kAll);
  ASSERT_EQ(own.engine, 0);
  EXPECT_EQ(router.Choose(RequestOf(Count(0, 42)), kAll).engine, 0)
      << "39 tokens more than nothing are less than the prefix";
  constexpr bool kFirst[] = {true, false, false};
  EXPECT_EQ(router.Choose(RequestOf({1}, 60), kFirst).engine, 0);
  EXPECT_EQ(router.Choose(RequestOf(Count(0, 42)), kAll).engine, 1)
      << "the first is much busier now";
}

TEST(Router, PrefixesAreThoseOfEqualSaltsAndOfRequestsThatUseTheCache) {
  Router router(3, kBlock, 64);
  const auto engine_of = [&](const std::string& salt, bool use_prefix_cache) {
    Request request = RequestOf(Count(0, 40));
    request.cache_salt = salt;
    request.use_prefix_cache = use_prefix_cache;
    const Router::Route route = router.Choose(request, kAll);
    router.Finish(route.engine, route.tokens());
    return route.engine;
  };
  EXPECT_EQ(engine_of("a", true), 0);
  EXPECT_EQ(engine_of("b", true), 1);
  EXPECT_EQ(engine_of("a", false), 2);
  EXPECT_EQ(engine_of("a", true), 0);
  EXPECT_EQ(engine_of("b", true), 1);
  router.ForgetPrefixes();
  EXPECT_EQ(engine_of("a", true), 2) << "it is its turn";
}

TEST(Router, PromptsOfRowsHaveNoPrefix) {
  Router router(3, kBlock, 64);
  Request request = RequestOf(std::vector<int32_t>(40, 0));
  request.rows = std::make_shared<const PromptRows>(
      PromptRows{.width = 1, .values = std::vector<float>(40, 1.0f)});
  for (const int engine : {0, 1, 2}) {
    const Router::Route route = router.Choose(request, kAll);
    EXPECT_EQ(route.engine, engine) << "placeholders tell nothing of what is cached";
    EXPECT_EQ(route.prompt_tokens, 40);
    router.Finish(route.engine, route.tokens());
  }
}

TEST(Router, OneThatMayNotBeChosenIsNot) {
  Router router(3, kBlock, 64);
  const Router::Route first = router.Choose(RequestOf(Count(0, 40)), kAll);
  EXPECT_EQ(first.engine, 0);
  constexpr bool kOthers[] = {false, true, true};
  EXPECT_NE(router.Choose(RequestOf(Count(0, 40)), kOthers).engine, 0);
}

TEST(PrefixRoutes, WhatWasGivenFirstMakesRoom) {
  PrefixRoutes routes(2, kBlock, 64);
  for (int32_t prompt = 0; prompt < 200; ++prompt)
    routes.Add(1, routes.Chain(Count(1000 * prompt, 40), ""));
  EXPECT_EQ(routes.Find(1, routes.Chain(Count(0, 40), "")), 0);
  EXPECT_EQ(routes.Find(1, routes.Chain(Count(199000, 43), "")), 40);
  EXPECT_EQ(routes.Find(1, routes.Chain(Count(199000, 3), "")), 0) << "not a block";
  EXPECT_EQ(routes.Find(0, routes.Chain(Count(199000, 40), "")), 0);
  routes.Clear();
  EXPECT_EQ(routes.Find(1, routes.Chain(Count(199000, 40), "")), 0);
}

TEST(PrefixRoutes, WithoutACacheNothingIsRemembered) {
  PrefixRoutes routes(2, kBlock, 0);
  const std::vector<uint64_t> chain = routes.Chain(Count(0, 40), "");
  EXPECT_TRUE(chain.empty());
  routes.Add(0, chain);
  EXPECT_EQ(routes.Find(0, chain), 0);
}

}  // namespace
}  // namespace sluice
