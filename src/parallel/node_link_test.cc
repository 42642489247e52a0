#include "parallel/node_link.h"

#include <sys/socket.h>

#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

SocketTime Soon() {
  return std::chrono::steady_clock::now() + 20s;
}

// The two ends of a link between machines with the given secrets.
struct Ends {
  std::optional<Result<NodeLink>> first, other;

  Ends(std::string_view first_secret, std::string_view other_secret) {
    auto listener = ListenAt("127.0.0.1", 0);
    std::thread thread([&] {
      auto socket = ConnectBy("127.0.0.1", listener->port, Soon());
      other.emplace(NodeLink::Open(*std::move(socket), other_secret, Soon()));
    });
    Arrivals arrivals(*listener, NodeLink::kAnswerBytes, NodeLink::Challenge);
    auto arrival = arrivals.Next(Soon());
    first.emplace(NodeLink::Accept(*std::move(arrival), first_secret, Soon()));
    thread.join();
  }
};

TEST(NodeLinkTest, MessagesOfBothEndsArrive) {
  Ends ends("secret", "secret");
  ASSERT_TRUE(*ends.first && *ends.other);
  NodeLink& first = **ends.first;
  NodeLink& other = **ends.other;
  ASSERT_TRUE(first.Send("run", Soon()));
  ASSERT_TRUE(first.Send("", Soon()));
  ASSERT_TRUE(other.Send("done", Soon()));
  EXPECT_EQ(*other.Receive(Soon()), "run");
  EXPECT_EQ(*other.Receive(Soon()), "");
  EXPECT_EQ(*first.Receive(Soon()), "done");
  EXPECT_EQ(PeerAddress(first.socket()), "127.0.0.1");
  ends.other.reset();
  EXPECT_EQ(first.Receive(Soon()).error().code, ErrorCode::kUnavailable);
}

TEST(NodeLinkTest, AnotherSecretIsToldToBoth) {
  Ends ends("secret", "sacred");
  ASSERT_FALSE(*ends.first);
  ASSERT_FALSE(*ends.other);
  EXPECT_THAT(ends.first->error().message, HasSubstr("has a different secret"));
  EXPECT_THAT(ends.other->error().message, HasSubstr("has a different secret"));
}

TEST(NodeLinkTest, WhatIsNotSignedIsRefused) {
  Ends ends("secret", "secret");
  const NodeLink& first = **ends.first;
  std::string forged{"\3\0\0\0run", 7};
  forged += std::string(32, 'x');
  ASSERT_TRUE(SendAllBy(first.socket(), std::as_bytes(std::span(forged)), Soon()));
  EXPECT_THAT((*ends.other)->Receive(Soon()).error().message, HasSubstr("did not sign"));
}

TEST(NodeLinkTest, AMessageThatIsTooLongIsRefused) {
  Ends ends("secret", "secret");
  const uint32_t size = 1U << 30;
  ASSERT_TRUE(SendAllBy((*ends.first)->socket(), std::as_bytes(std::span(&size, 1)), Soon()));
  EXPECT_THAT((*ends.other)->Receive(Soon()).error().message, HasSubstr("expected at most"));
}

TEST(NodeLinkTest, ATakenPortIsNamed) {
  const auto listener = ListenAt("127.0.0.1", 0);
  const auto second = ListenAt("127.0.0.1", listener->port);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kAddressInUse);
  EXPECT_THAT(second.error().message, HasSubstr("another --master-port"));
}

TEST(NodeLinkTest, AnAddressOfAnotherMachineIsNamed) {
  const auto listener = ListenAt("192.0.2.200", 0);
  ASSERT_FALSE(listener);
  EXPECT_EQ(listener.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(listener.error().message, HasSubstr("192.0.2.200 is no address of this machine"));
  EXPECT_FALSE(ListenAt("node1", 0));
}

TEST(NodeLinkTest, AnOwnAddressHasANetwork) {
  EXPECT_EQ(NetworkOf("127.0.0.1"), "127.0.0.0/8");
  EXPECT_EQ(NetworkOf("192.0.2.200"), "");
  EXPECT_EQ(*AddressOfHost("127.0.0.1"), "127.0.0.1");
}

}  // namespace
}  // namespace sluice
