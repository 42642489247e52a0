#include "server/api/response_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<StoredResponse> Make(const std::string& id, bool is_over = true, size_t size = 10,
                                     uint64_t owner = 0) {
  StoredResponse::Content content;
  content.id = id;
  content.owner = owner;
  content.messages = content.input_items = "[]";
  content.body = R"({"status":"queued","text":")" + std::string(size, 'x') + "\"}";
  content.item_ids = {"item-of-" + id};
  return std::make_shared<StoredResponse>(std::move(content), is_over);
}

TEST(ResponseStoreTest, ForgetsTheOldestThatAreOver) {
  ResponseStore store(20000);
  const auto running = Make("running", /*is_over=*/false);
  ASSERT_EQ(store.Add(running), ResponseStore::Added::kYes);
  for (int i = 0; i < 100; ++i)
    ASSERT_EQ(store.Add(Make(std::to_string(i))), ResponseStore::Added::kYes);
  EXPECT_LE(store.bytes(), 20000u);
  EXPECT_GT(store.size(), 10u);
  EXPECT_EQ(store.Find("running", 0), running);
  EXPECT_EQ(store.Find("0", 0), nullptr);
  EXPECT_EQ(store.FindByItem("item-of-0", 0), nullptr);
  EXPECT_NE(store.Find("99", 0), nullptr);
  EXPECT_EQ(store.FindByItem("item-of-99", 0), store.Find("99", 0));
  EXPECT_EQ(store.Add(Make("large", true, 30000)), ResponseStore::Added::kNoRoom);
  EXPECT_NE(store.Find("99", 0), nullptr);  // nothing is forgotten for what never fits
}

TEST(ResponseStoreTest, WhatRunsIsNotReplacedAndHasABound) {
  ResponseStore store(20000);
  const auto running = Make("a", /*is_over=*/false);
  ASSERT_EQ(store.Add(running), ResponseStore::Added::kYes);
  EXPECT_EQ(store.Add(Make("a")), ResponseStore::Added::kIdTaken);
  running->AddEvent(std::string(9000, 'x'));
  EXPECT_TRUE(store.Update(*running));
  running->AddEvent(std::string(30000, 'x'));
  EXPECT_FALSE(store.Update(*running));
  running->End("failed", "why");
  EXPECT_THAT(running->body(), HasSubstr(R"("status":"failed")"));
  EXPECT_THAT(running->body(), HasSubstr(R"("message":"why")"));
  EXPECT_EQ(store.Add(Make("a")), ResponseStore::Added::kYes);
  EXPECT_EQ(store.size(), 1u);
  store.Remove(*running);  // which is another one by now
  EXPECT_EQ(store.size(), 1u);
}

TEST(ResponseStoreTest, IsEachOwnersOwn) {
  ResponseStore store(20000);
  const auto response = Make("a", true, 10, /*owner=*/7);
  ASSERT_EQ(store.Add(response), ResponseStore::Added::kYes);
  EXPECT_EQ(store.Find("a", 7), response);
  EXPECT_EQ(store.Find("a", 8), nullptr);
  EXPECT_EQ(store.FindByItem("item-of-a", 8), nullptr);
  EXPECT_EQ(store.Add(Make("a", true, 10, /*owner=*/8)), ResponseStore::Added::kIdTaken);
  EXPECT_EQ(store.Find("a", 7), response);
  store.Remove(*response);
  EXPECT_EQ(store.bytes(), 0u);
  EXPECT_EQ(store.FindByItem("item-of-a", 7), nullptr);
}

TEST(StoredResponseTest, EndsOnceAndTellsWhoeverGeneratesIt) {
  const auto response = Make("a", /*is_over=*/false);
  int calls = 0;
  response->OnEnd([&] { ++calls; });
  EXPECT_TRUE(response->End("cancelled", ""));
  EXPECT_FALSE(response->End("failed", "late"));
  EXPECT_EQ(calls, 1);
  response->OnEnd([&] { ++calls; });  // at once
  EXPECT_EQ(calls, 2);
  response->SetBody("{}", {}, true);  // too late
  EXPECT_THAT(response->body(), HasSubstr("cancelled"));
}

TEST(StoredResponseTest, TellsOfEvents) {
  const auto response = Make("a", /*is_over=*/false);
  int news = 0;
  response->Watch([&] { return ++news < 3; });
  response->AddEvent("one");
  response->AddEvent("two");
  response->AddEvent("three");  // nobody watches any more
  EXPECT_EQ(news, 3);
  EXPECT_EQ(response->Event(1), "two");
  EXPECT_EQ(response->Event(3), std::nullopt);
  EXPECT_FALSE(response->EndsAt(3));
  response->EndEvents();
  EXPECT_TRUE(response->EndsAt(3));
  EXPECT_FALSE(response->EndsAt(2));
  response->AddEvent("late");
  EXPECT_EQ(response->Event(3), std::nullopt);
}

}  // namespace
}  // namespace sluice
