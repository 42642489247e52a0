#include "parallel/handshake.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/local_group.h"

namespace sluice {
namespace {

using ::testing::Each;

// Returns what CompareFacts returns at each rank of a group with these facts: the message, "" on
// success.
std::vector<std::string> Compare(const std::vector<std::vector<Fact>>& facts) {
  auto group = MakeLocalGroup({.size = static_cast<int>(facts.size()), .spin = false});
  const std::vector<std::string> names{"rank 0 (on a)", "rank 1 (on b)", "rank 2 (on c)"};
  std::vector<std::string> messages(facts.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < facts.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const Status status = CompareFacts(*group[rank], facts[rank], names);
      if (!status) messages[rank] = status.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return messages;
}

TEST(HandshakeTest, AlikeRanksAreAccepted) {
  const std::vector<Fact> facts{{"program", "1", "x"}, {"model files", "abc", "y"}};
  EXPECT_THAT(Compare({facts, facts, facts}), Each(""));
}

TEST(HandshakeTest, AllRanksNameTheOneThatDiffersAndTheMend) {
  const std::vector<Fact> facts{{"program", "1", "install one version"}, {"files", "abc", "copy"}};
  std::vector<Fact> other = facts;
  other[1].value = "abd";
  EXPECT_THAT(Compare({facts, facts, other}),
              Each("rank 2 (on c) differs from rank 0 (on a) in its files: expected abc, found "
                   "abd; copy"));
  other[0].value = "2";
  EXPECT_THAT(Compare({facts, other, facts}),
              Each("rank 1 (on b) differs from rank 0 (on a) in its program: expected 1, found 2; "
                   "install one version"));
}

TEST(HandshakeTest, FactsThatAreCutOffAreRefused) {
  const std::vector<Fact> facts{{"program", "1", ""}, {"files", "abc", ""}};
  const std::vector<std::byte> bytes = EncodeFacts(facts);
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(DecodeFacts(std::span(bytes).first(size))) << size;
  EXPECT_EQ(DecodeFacts(bytes)->at(1).value, "abc");
}

}  // namespace
}  // namespace sluice
