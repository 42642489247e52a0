// Requests that RFC 9110 and RFC 9112 forbid. Each is refused, its connection is closed, and the
// bytes after it are never read as another request.
#include <atomic>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/http/http_server.h"
#include "server/http/raw_client_testing.h"

namespace sluice {
namespace {

using namespace std::string_literals;

struct Malformed {
  std::string bytes;
  int status = 400;
};

// Malformed request lines.
std::vector<Malformed> RequestLines() {
  const std::string lines[] = {
      "GET",
      "GET ",
      "GET  ",
      "GET /p",
      "GET /p ",
      "GET /p\tHTTP/1.1",
      "GET\t/p HTTP/1.1",
      " GET /p HTTP/1.1",
      "\tGET /p HTTP/1.1",
      "GET  /p HTTP/1.1",
      "GET /p  HTTP/1.1",
      "GET /p HTTP/1.1 ",
      "GET /p HTTP/1.1\t",
      "GET /p HTTP/1.1 x",
      "GET /a b HTTP/1.1",
      "GET /a\tb HTTP/1.1",
      "GET /a\x01"s + "b HTTP/1.1",
      "GET /a\x7f"s + "b HTTP/1.1",
      "GET /a\0b HTTP/1.1"s,
      "GET /a\rb HTTP/1.1",
      "GET HTTP/1.1",
      "/p HTTP/1.1",
      "HTTP/1.1 200 OK",
      "GET /p http/1.1",
      "GET /p Http/1.1",
      "GET /p HTTP",
      "GET /p HTTP/",
      "GET /p HTTP/1",
      "GET /p HTTP/1.",
      "GET /p HTTP/.1",
      "GET /p HTTP/11",
      "GET /p HTTP/1,1",
      "GET /p HTTP/1.1.1",
      "GET /p HTTP/1.10",
      "GET /p HTTP/01.1",
      "GET /p HTTP/1.x",
      "GET /p HTTP/x.1",
      "GET /p HTTP/-1.1",
      "GET /p HTTP/0.9",
      "GET /p HTTP/2.0",
      "GET /p HTTP/3.0",
      "GET /p HTTP/9.9",
      "GET /p HTTPS/1.1",
      "GET /p HTTP 1.1",
      "GET /p HTTP /1.1",
      "GET /p HTTP/ 1.1",
      "GET /p XTTP/1.1",
      "GET /p RTSP/1.0",
      "GET /p ICE/1.0",
      "G(T /p HTTP/1.1",
      "G@T /p HTTP/1.1",
      "G:T /p HTTP/1.1",
      "\"GET\" /p HTTP/1.1",
      "GET\x80 /p HTTP/1.1",
      "GET\0 /p HTTP/1.1"s,
      "get /p HTTP/1.1",
      "Get /p HTTP/1.1",
      "GETX /p HTTP/1.1",
      "\x16\x03\x01\x02",  // start of a TLS handshake
      "{}",
  };
  std::vector<Malformed> all;
  for (const std::string& line : lines) all.push_back({line + "\r\nHost: x\r\n\r\n"});
  return all;
}

std::vector<Malformed> FieldLines() {
  std::vector<std::string> lines = {
      "NoColon",
      ": no name",
      ":",
      " Leading: space",
      "Name : space before the colon",
      "Name\t: tab before the colon",
      "Two words: x",
      "Host\0: x"s,
      "Name: a\0b"s,
      "Name: a\x01"s + "b",
      "Name: a\x08"s + "b",
      "Name: a\x1f"s + "b",
      "Name: a\x7f"s + "b",
      "Name: a\rb",
      "Name: a\rContent-Length: 5",
      "Na\rme: a",
      "\rName: a",
      "Na\x01me: a",
      "Na\x7fme: a",
      "N\x80me: a",
      "N\xc3\xa4me: a",
      "Content-Length : 5",
      "Transfer-Encoding : chunked",
      "Transfer-Encoding\t: chunked",
      "Transfer Encoding: chunked",
      "\x0bTransfer-Encoding: chunked",
  };
  for (const char c : "\"(),/;<=>?@[\\]{}"s) lines.push_back("Na"s + c + "me: a");
  std::vector<Malformed> all;
  for (const std::string& line : lines)
    all.push_back({"GET /p HTTP/1.1\r\nHost: x\r\n" + line + "\r\n\r\n"});
  return all;
}

std::vector<Malformed> Hosts() {
  std::vector<Malformed> all = {
      {"GET /p HTTP/1.1\r\n\r\n"},
      {"GET /p HTTP/1.1\r\nAccept: a\r\n\r\n"},
      {"GET http://a.example/p HTTP/1.1\r\n\r\n"},
      {"GET /p HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"},
      {"GET /p HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"},
      {"GET /p HTTP/1.1\r\nHost: a\r\nhOST: b\r\n\r\n"},
      {"GET /p HTTP/1.1\r\nHost:\r\nHost: b\r\n\r\n"},
      {"GET /p HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"},
  };
  for (const char* host :
       {"a b",     "a\tb", "a, b",   "a/b",     "a?b",     "a#b",    "u@a",      "u:p@a", "a:b",
        "a:80:81", "a:-1", "a:+1",   "a: 80",   "a:80 81", "a:0x50", "http://a", "[",     "[]",
        "[::1",    "::1",  "[::1]x", "[::1]:x", "[::1/]",  "a\\b",   "<a>",      "\"a\"", "a{b}",
        "a|b",     "a^b",  "a`b",    "a%",      "a%4",     "a%zz",   "\xc3\xa4"}) {
    all.push_back({"GET /p HTTP/1.1\r\nHost: "s + host + "\r\n\r\n"});
  }
  return all;
}

std::vector<Malformed> Lengths() {
  std::vector<Malformed> all;
  for (const char* length : {"",
                             "+0",
                             "+5",
                             "-0",
                             "-1",
                             "0x5",
                             "5x",
                             "x5",
                             "abc",
                             "5 5",
                             "5,6",
                             "5;5",
                             "5.",
                             "5.0",
                             "5e0",
                             "\"5\"",
                             "'5'",
                             "(5)",
                             "18446744073709551616",
                             "99999999999999999999999",
                             "\x0b"
                             "5",
                             "\xd9\xa5",
                             "5\x0c",
                             "0 0",
                             "infinity",
                             "NaN",
                             "null",
                             "5%",
                             "%35",
                             "--5"}) {
    all.push_back({"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: "s + length + "\r\n\r\nhello"});
  }
  for (const char* two :
       {"5\r\nContent-Length: 6", "6\r\nContent-Length: 5", "0\r\nContent-Length: 5",
        "5\r\ncontent-length: 0", "5\r\nContent-Length: x"}) {
    all.push_back({"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: "s + two + "\r\n\r\nhello"});
  }
  return all;
}

std::vector<Malformed> TransferEncodings() {
  struct Encoding {
    const char* value;
    int status;
  };
  const Encoding encodings[] = {
      {"", 400},
      {" ", 400},
      {",", 400},
      {"xchunked", 400},
      {"chunkedx", 400},
      {"chunke", 400},
      {"identity", 400},
      {"gzip", 400},
      {"deflate", 400},
      {"cow", 400},
      {"\"chunked\"", 400},
      {"'chunked'", 400},
      {"chunked, identity", 400},
      {"identity, chunked", 501},
      {"cow, chunked", 501},
      {"gzip, cow, chunked", 501},
      {"gzip, chunked", 415},
      {"GZIP,Chunked", 415},
      {"x-gzip, chunked", 415},
      {"deflate, chunked", 415},
      {"compress, chunked", 415},
      {"gzip, deflate, chunked", 415},
      {"gzip\r\nTransfer-Encoding: chunked", 415},
      {"cow\r\nTransfer-Encoding: chunked", 501},
      {"chunked, gzip", 400},
      {"chunked, chunked", 400},
      {"chunked\r\nTransfer-Encoding: chunked", 400},
      {"chunked\r\nTransfer-Encoding: identity", 400},
      {"identity\r\nTransfer-Encoding: identity", 400},
      {"chunked,", 400},
      {",chunked", 400},
      {"chunked;q=1", 400},
      {"chunked;", 400},
      {"chunked chunked", 400},
      {"chunked\x0b", 400},
      {"\x0b"
       "chunked",
       400},
      {"ch\xc3\xbcnked", 400},
      {"chunked\r\nContent-Length: 5", 400},
      {"identity\r\nContent-Length: 5", 400},
      {"cow\r\nContent-Length: 5", 400},
      {"gzip, chunked\r\nContent-Length: 5", 400},
      {"\r\nContent-Length: 5", 400},
  };
  std::vector<Malformed> all = {
      {"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: "
       "chunked\r\n\r\n0\r\n\r\n"},
      {"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: cow\r\n\r\nhello"},
      {"POST /p HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {"POST /p HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n"},
  };
  for (const Encoding& encoding : encodings) {
    for (const char* body : {"", "0\r\n\r\n"}) {
      all.push_back({"POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "s + encoding.value +
                         "\r\n\r\n" + body,
                     encoding.status});
    }
  }
  return all;
}

std::vector<Malformed> ChunkedBodies() {
  std::vector<Malformed> all;
  for (const char* body : {
           "x\r\n",
           "-1\r\nx\r\n",
           "+1\r\nx\r\n",
           "0x1\r\nx\r\n",
           "1h\r\nx\r\n",
           "\r\nx\r\n",
           " 1\r\nx\r\n",
           ";a\r\n",
           "1,\r\nx\r\n",
           "1.0\r\nx\r\n",
           "\"1\"\r\nx\r\n",
           "10000000000000000\r\nx\r\n",
           "fffffffffffffffff\r\nx\r\n",
           "1\nx\r\n0\r\n\r\n",
           "1\rx\r\n0\r\n\r\n",
           "1\r\nxy\r\n0\r\n\r\n",
           "1\r\nx0\r\n\r\n",
           "1\r\nx\n0\r\n\r\n",
           "1\r\nx\r0\r\n\r\n",
           "2\r\nx\r\n0\r\n\r\n",
           "1\r\nx\r\n-0\r\n\r\n",
           "1\r\nx\r\n0\n\r\n",
           "1\r\nx\r\nz\r\n\r\n",
           "1 x\r\nx\r\n0\r\n\r\n",
           "0\r\nNoColon\r\n\r\n",
           "0\r\n: a\r\n\r\n",
           "0\r\nNa me: a\r\n\r\n",
           "0\r\nName : a\r\n\r\n",
       }) {
    all.push_back({"POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"s + body});
  }
  return all;
}

class CountingHandler : public HttpHandler {
 public:
  std::optional<HttpResponse> CheckHead(const HttpRequest&) override { return std::nullopt; }
  void Handle(HttpRequest, std::shared_ptr<ResponseWriter> writer) override {
    ++handled;
    writer->Send({});
  }
  std::vector<HttpHeader> CommonHeaders(const HttpRequest&, int) override { return {}; }

  std::atomic<int> handled{0};
};

class MalformedRequestsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ServerConfig config;
    config.host = "127.0.0.1";
    config.port = 0;
    auto server = HttpServer::Listen(config, std::make_shared<RequestMemory>(uint64_t{64} << 20),
                                     &handler_, [](const HttpExchangeRecord&) {});
    ASSERT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
    server_->Start();
  }
  void ExpectRefused(const std::vector<Malformed>& requests) {
    for (const Malformed& request : requests) {
      const std::string shown = ::testing::PrintToString(request.bytes);
      RawClient client(server_->port());
      client.Send(request.bytes + "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n");
      client.HalfClose();
      const std::string answer = client.ReadAll();
      EXPECT_THAT(answer, ::testing::StartsWith("HTTP/1.1 " + std::to_string(request.status) + " "))
          << shown;
      EXPECT_EQ(answer.find("HTTP/1.1 ", 1), std::string::npos) << shown;
      EXPECT_TRUE(client.closed()) << shown;
    }
    EXPECT_EQ(handler_.handled, 0);
  }

  CountingHandler handler_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(MalformedRequestsTest, RefusesRequestLines) {
  ExpectRefused(RequestLines());
}
TEST_F(MalformedRequestsTest, RefusesFieldLines) {
  ExpectRefused(FieldLines());
}
TEST_F(MalformedRequestsTest, RefusesHosts) {
  ExpectRefused(Hosts());
}
TEST_F(MalformedRequestsTest, RefusesLengths) {
  ExpectRefused(Lengths());
}
TEST_F(MalformedRequestsTest, RefusesTransferEncodings) {
  ExpectRefused(TransferEncodings());
}
TEST_F(MalformedRequestsTest, RefusesChunkedBodies) {
  ExpectRefused(ChunkedBodies());
}

// Unusual but valid requests, which the checks above must accept.
TEST_F(MalformedRequestsTest, TakesWhatIsUnusualAndAllowed) {
  int expected = 0;
  for (const char* head :
       {"Host:\r\n", "Host: [::1]:80\r\n", "Host: a_b.example:\r\n", "Host: a%41\r\n",
        "hOsT:\tx \r\n", "Host: x\r\nTransfer-Encoding: Chunked\r\n",
        "Host: x\r\nContent-Length: 007\r\n"}) {
    const bool chunked = std::string_view(head).find("Chunked") != std::string_view::npos;
    RawClient client(server_->port());
    client.Send("POST /p HTTP/1.1\r\nConnection: close\r\n"s + head + "\r\n" +
                (chunked ? "2\r\nab\r\n0\r\n\r\n" : "1234567"));
    EXPECT_THAT(client.ReadAll(), ::testing::StartsWith("HTTP/1.1 200 ")) << head;
    EXPECT_EQ(handler_.handled, ++expected) << head;
  }
  RawClient old(server_->port());
  old.Send("GET /p HTTP/1.0\r\n\r\n");
  EXPECT_THAT(old.ReadAll(), ::testing::StartsWith("HTTP/1.1 200 "));
}

}  // namespace
}  // namespace sluice
