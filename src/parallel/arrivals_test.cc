#include "parallel/arrivals.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

SocketTime SoonAfter(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

class ArrivalsTest : public ::testing::Test {
 protected:
  ArrivalsTest() : listener_(*ListenAt("127.0.0.1", 0)) {}

  // Connects from `address`, a loopback address, and sends `text`.
  OwnedFd Connect(std::string_view text = "", const std::string& address = "127.0.0.1") {
    OwnedFd connected(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in own{}, to{};
    own.sin_family = to.sin_family = AF_INET;
    inet_pton(AF_INET, address.c_str(), &own.sin_addr);
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    to.sin_port = htons(listener_.port);
    EXPECT_EQ(bind(connected.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
    EXPECT_EQ(connect(connected.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    EXPECT_TRUE(SendAllBy(connected, std::as_bytes(std::span(text)), SoonAfter(20s)));
    return connected;
  }
  static std::string TextIn(const Arrival& arrival) {
    return {reinterpret_cast<const char*>(arrival.received.data()), arrival.received.size()};
  }
  // Returns whether the peer has closed the connection.
  static bool IsEnded(const OwnedFd& socket) {
    char byte = 0;
    return recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }

  Listener listener_;
};

TEST_F(ArrivalsTest, SilentStrangersDelayNobody) {
  std::vector<OwnedFd> strangers;
  for (int i = 0; i < 5; ++i) strangers.push_back(Connect(i % 2 == 0 ? "" : "abc"));
  const auto start = std::chrono::steady_clock::now();
  const OwnedFd friendly = Connect("word");
  Arrivals arrivals(listener_, 4);
  const auto arrival = arrivals.Next(SoonAfter(20s));
  ASSERT_TRUE(arrival) << arrival.error().message;
  EXPECT_EQ(TextIn(*arrival), "word");
  EXPECT_EQ(arrival->address, "127.0.0.1");
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
}

TEST_F(ArrivalsTest, BytesMayComeOneByOneAndWhatFollowsStays) {
  Arrivals arrivals(listener_, 4);
  const OwnedFd slow = Connect("w");
  EXPECT_FALSE(arrivals.Next(SoonAfter(50ms)));
  const std::string_view rest = "ordMORE";
  ASSERT_TRUE(SendAllBy(slow, std::as_bytes(std::span(rest)), SoonAfter(20s)));
  const auto arrival = arrivals.Next(SoonAfter(20s));
  ASSERT_TRUE(arrival);
  EXPECT_EQ(TextIn(*arrival), "word");
  std::array<std::byte, 4> more{};
  ASSERT_TRUE(ReceiveAllBy(arrival->socket, more, SoonAfter(20s)));
  EXPECT_EQ(std::memcmp(more.data(), "MORE", 4), 0);
}

TEST_F(ArrivalsTest, ACrowdOfOneAddressEndsItsOldestAlone) {
  const OwnedFd other = Connect("", "127.0.0.2");
  std::vector<OwnedFd> crowd;
  for (size_t i = 0; i < Arrivals::kMostOfAddress + 3; ++i) crowd.push_back(Connect());
  Arrivals arrivals(listener_, 1);
  EXPECT_FALSE(arrivals.Next(SoonAfter(200ms)));
  for (size_t i = 0; i < crowd.size(); ++i) EXPECT_EQ(IsEnded(crowd[i]), i < 3) << i;
  EXPECT_FALSE(IsEnded(other));
  const std::string_view byte = "x";
  ASSERT_TRUE(SendAllBy(crowd.back(), std::as_bytes(std::span(byte)), SoonAfter(20s)));
  EXPECT_TRUE(arrivals.Next(SoonAfter(20s)));
}

TEST_F(ArrivalsTest, CrowdsOfManyAddressesAreBounded) {
  std::vector<OwnedFd> crowd;
  for (size_t i = 0; i < Arrivals::kMost + 10; ++i)
    crowd.push_back(Connect("", "127.0.1." + std::to_string(1 + i / 6)));
  Arrivals arrivals(listener_, 1);
  EXPECT_FALSE(arrivals.Next(SoonAfter(300ms)));
  const auto ended = std::count_if(crowd.begin(), crowd.end(), IsEnded);
  EXPECT_EQ(ended, 10);
}

TEST_F(ArrivalsTest, GreetsEachAndNamesTheDeadline) {
  Arrivals arrivals(listener_, 1, [] { return Result<Bytes>(Bytes(3, std::byte{'q'})); });
  const OwnedFd asked = Connect();
  const auto none = arrivals.Next(SoonAfter(50ms));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(none.error().message, HasSubstr("timed out"));
  std::array<std::byte, 3> greeting{};
  ASSERT_TRUE(ReceiveAllBy(asked, greeting, SoonAfter(20s)));
  EXPECT_EQ(greeting[2], std::byte{'q'});
}

TEST_F(ArrivalsTest, ConnectionsThatEndAreForgotten) {
  Arrivals arrivals(listener_, 4);
  for (int i = 0; i < 100; ++i) Connect(i % 2 == 0 ? "" : "ab");
  const OwnedFd last = Connect("last");
  const auto arrival = arrivals.Next(SoonAfter(20s));
  ASSERT_TRUE(arrival);
  EXPECT_EQ(TextIn(*arrival), "last");
}

}  // namespace
}  // namespace sluice
