#include "server/api/store/response_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<StoredResponse> Make(const std::string& id, bool is_over = true, size_t size = 10,
                                     const std::string& owner = "") {
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
  EXPECT_EQ(store.Find("running", ""), running);
  EXPECT_EQ(store.Find("0", ""), nullptr);
  EXPECT_EQ(store.FindByItem("item-of-0", ""), nullptr);
  EXPECT_NE(store.Find("99", ""), nullptr);
  EXPECT_EQ(store.FindByItem("item-of-99", ""), store.Find("99", ""));
  EXPECT_EQ(store.Add(Make("large", true, 30000)), ResponseStore::Added::kTooLarge);
  EXPECT_NE(store.Find("99", ""), nullptr);  // nothing is removed for a response that never fits
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
  store.Remove(*running);  // has no effect, because another response has replaced this one
  EXPECT_EQ(store.size(), 1u);
}

TEST(ResponseStoreTest, OwnersHaveTheirShare) {
  ResponseStore store(100000);
  for (int i = 0; i < 10; ++i)
    ASSERT_EQ(store.Add(Make("few" + std::to_string(i), true, 1000, "few")),
              ResponseStore::Added::kYes);
  const uint64_t few = store.bytes();
  for (const std::string owner : {"many", "more"}) {
    for (int i = 0; i < 200; ++i) {
      ASSERT_EQ(store.Add(Make(owner + std::to_string(i), true, 1000, owner)),
                ResponseStore::Added::kYes);
    }
  }
  EXPECT_LE(store.bytes(), 100000u);
  for (int i = 0; i < 10; ++i)
    EXPECT_NE(store.Find("few" + std::to_string(i), "few"), nullptr) << i;
  // "many" lost responses to "more", and both owners end with equal shares.
  const auto bytes_of = [&](const std::string& owner) {
    uint64_t bytes = 0;
    for (int i = 0; i < 200; ++i) {
      if (const auto found = store.Find(owner + std::to_string(i), owner)) bytes += found->bytes();
    }
    return bytes;
  };
  EXPECT_NEAR(static_cast<double>(bytes_of("many")), (100000.0 - static_cast<double>(few)) / 2,
              5000);
  EXPECT_NEAR(static_cast<double>(bytes_of("more")), (100000.0 - static_cast<double>(few)) / 2,
              5000);
}

TEST(ResponseStoreTest, WhatIsRefusedTakesNoPlace) {
  ResponseStore store(100000);
  ASSERT_EQ(store.Add(Make("a", true, 40000, "one")), ResponseStore::Added::kYes);
  ASSERT_EQ(store.Add(Make("b", true, 1000, "other")), ResponseStore::Added::kYes);
  ASSERT_EQ(store.Add(Make("c", true, 1000, "other")), ResponseStore::Added::kYes);
  // With this response, "other" would hold more than "one", so the response of "one" is not removed
  // for it.
  EXPECT_EQ(store.Add(Make("d", true, 70000, "other")), ResponseStore::Added::kNoRoom);
  // If the replacement of "c" is refused, the existing "c" is kept.
  EXPECT_EQ(store.Add(Make("c", true, 70000, "other")), ResponseStore::Added::kNoRoom);
  EXPECT_EQ(store.Add(Make("d", true, 200000, "third")), ResponseStore::Added::kTooLarge);
  EXPECT_NE(store.Find("a", "one"), nullptr);
  EXPECT_NE(store.Find("b", "other"), nullptr);
  EXPECT_NE(store.Find("c", "other"), nullptr);
  // A running response whose growth is refused does not remove other responses.
  const auto running = Make("e", /*is_over=*/false, 10, "other");
  ASSERT_EQ(store.Add(running), ResponseStore::Added::kYes);
  running->AddEvent(std::string(70000, 'x'));
  EXPECT_FALSE(store.Update(*running));
  EXPECT_NE(store.Find("a", "one"), nullptr);
  EXPECT_NE(store.Find("b", "other"), nullptr);
}

TEST(ResponseStoreTest, AnIdIsOneOwnersFromItsRequestOn) {
  ResponseStore store(20000);
  EXPECT_TRUE(store.TakeId("a", "one"));
  EXPECT_TRUE(store.TakeId("a", "one"));
  EXPECT_FALSE(store.TakeId("a", "other"));
  store.ReleaseId("a");
  EXPECT_FALSE(store.TakeId("a", "other"));
  ASSERT_EQ(store.Add(Make("a", true, 10, "one")), ResponseStore::Added::kYes);
  store.ReleaseId("a");
  EXPECT_FALSE(store.TakeId("a", "other"));
  EXPECT_TRUE(store.TakeId("a", "one"));
  store.ReleaseId("a");
  store.Remove(*store.Find("a", "one"));
  EXPECT_TRUE(store.TakeId("a", "other"));
}

TEST(ResponseStoreTest, IsEachOwnersOwn) {
  ResponseStore store(20000);
  const auto response = Make("a", true, 10, /*owner=*/"seven");
  ASSERT_EQ(store.Add(response), ResponseStore::Added::kYes);
  EXPECT_EQ(store.Find("a", "seven"), response);
  EXPECT_EQ(store.Find("a", "eight"), nullptr);
  EXPECT_EQ(store.FindByItem("item-of-a", "eight"), nullptr);
  EXPECT_EQ(store.Add(Make("a", true, 10, /*owner=*/"eight")), ResponseStore::Added::kIdTaken);
  EXPECT_EQ(store.Find("a", "seven"), response);
  store.Remove(*response);
  EXPECT_EQ(store.bytes(), 0u);
  EXPECT_EQ(store.FindByItem("item-of-a", "seven"), nullptr);
}

TEST(StoredResponseTest, EndsOnceAndTellsWhoeverGeneratesIt) {
  const auto response = Make("a", /*is_over=*/false);
  int calls = 0;
  response->OnEnd([&] { ++calls; });
  EXPECT_TRUE(response->End("cancelled", ""));
  EXPECT_FALSE(response->End("failed", "late"));
  EXPECT_EQ(calls, 1);
  response->OnEnd([&] { ++calls; });  // called immediately
  EXPECT_EQ(calls, 2);
  response->SetBody("{}", {}, true);  // ignored, because the response is over
  EXPECT_THAT(response->body(), HasSubstr("cancelled"));
}

TEST(StoredResponseTest, TellsOfEvents) {
  const auto response = Make("a", /*is_over=*/false);
  int news = 0;
  response->Watch([&] { return ++news < 3; });
  response->AddEvent("one");
  response->AddEvent("two");
  response->AddEvent("three");  // no watcher is left
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
