// Requests that the network splits between any two bytes.
#include "server/http/request_parser.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

// Returns the body of a request that arrives byte by byte; nullopt if it is refused or incomplete.
std::optional<std::string> ReadByteByByte(std::string_view request) {
  HttpRequestParser parser(std::make_shared<RequestMemory>(uint64_t{64} << 20));
  parser.eager(true);
  std::string buffer;
  for (const char c : request) {
    buffer += c;
    boost::system::error_code error;
    buffer.erase(0, parser.put(boost::asio::buffer(buffer), error));
    if (error && error != boost::beast::http::error::need_more) return std::nullopt;
  }
  return parser.is_done() ? std::optional(parser.body()) : std::nullopt;
}

TEST(RequestParserTest, ReadsWhatComesByteByByte) {
  const std::string post = "POST /p HTTP/1.1\r\nHost: x\r\n";
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(ReadByteByByte(post + "Content-Length: 5\r\n\r\nhello"), "hello");
  EXPECT_EQ(ReadByteByByte(chunked + "2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n"), "hello");
  EXPECT_EQ(ReadByteByByte(chunked + "2\r\nhe\r\n0;x\r\nTrailer: a\r\n\r\n"), "he");
  EXPECT_EQ(ReadByteByByte(chunked + "0\r\n\r\n"), "");
  EXPECT_EQ(ReadByteByByte(chunked + "0\r\nTrailer: a\r\n\r\n"), "");
  EXPECT_EQ(ReadByteByByte(chunked + "0\r\n\r"), std::nullopt);
}

TEST(RequestParserTest, TrailersAreNoHeaders) {
  HttpRequestParser parser(std::make_shared<RequestMemory>(uint64_t{64} << 20));
  parser.eager(true);
  const std::string request =
      "POST /p HTTP/1.1\r\nA: b\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: c\r\n\r\n";
  boost::system::error_code error;
  parser.put(boost::asio::buffer(request), error);
  ASSERT_TRUE(parser.is_done()) << error.message();
  ASSERT_EQ(parser.fields().size(), 2u);
  EXPECT_EQ(parser.fields()[0].name, "a");
  EXPECT_EQ(parser.fields()[1].name, "transfer-encoding");
}

}  // namespace
}  // namespace sluice
