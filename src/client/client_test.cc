#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "client/client_testing.h"
#include "client/event_stream.h"
#include "client/openai_client.h"
#include "client/url.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Url, Parts) {
  const Url plain = *ParseUrl("http://host:8000/v1/");
  EXPECT_EQ(plain.host, "host");
  EXPECT_EQ(plain.port, 8000);
  EXPECT_EQ(plain.path, "/v1");
  EXPECT_EQ(ParseUrl("localhost")->port, 80);
  EXPECT_EQ(ParseUrl("[::1]:99")->host, "::1");
  EXPECT_EQ(ParseUrl("[::1]:99")->port, 99);
}

TEST(Url, Refusals) {
  for (const char* text :
       {"", "http://", "http://h:", "http://h:x", "http://h:70000", "ftp://h", "[::1"}) {
    EXPECT_FALSE(ParseUrl(text)) << text;
  }
  EXPECT_EQ(ParseUrl("https://h").error().code, ErrorCode::kUnsupported);
}

TEST(EventStream, BytesMayBeCutAnywhere) {
  const std::string text =
      ": comment\r\ndata: one\r\n\r\nid: 5\ndata:two\ndata: lines\n\n\ndata: three\n\n";
  for (size_t step = 1; step <= text.size(); ++step) {
    EventStream stream;
    std::vector<std::string> seen;
    for (size_t i = 0; i < text.size(); i += step) {
      EXPECT_TRUE(stream.Take(std::string_view(text).substr(i, step), [&](std::string_view data) {
        seen.emplace_back(data);
        return true;
      }));
    }
    EXPECT_THAT(seen, ElementsAre("one", "two\nlines", "three")) << step;
  }
}

TEST(EventStream, StopsWhereItIsTold) {
  EventStream stream;
  int count = 0;
  EXPECT_FALSE(
      stream.Take("data: a\n\ndata: b\n\n", [&](std::string_view) { return ++count < 1; }));
  EXPECT_EQ(count, 1);
}

// Answers each connection with the next of the given texts and closes it.
class FakeServer {
 public:
  explicit FakeServer(std::vector<std::string> answers, bool hold_open = false) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    socklen_t size = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    url_.host = "127.0.0.1";
    url_.port = ntohs(address.sin_port);
    listen(listener_, 8);
    thread_ = std::thread([this, answers = std::move(answers), hold_open] {
      for (const std::string& answer : answers) {
        const int client = accept(listener_, nullptr, nullptr);
        std::string request;
        char bytes[4096];
        while (request.find("\r\n\r\n") == std::string::npos ||
               (request.starts_with("POST") && !request.ends_with('}'))) {
          const ssize_t got = recv(client, bytes, sizeof(bytes), 0);
          if (got <= 0) break;
          request.append(bytes, static_cast<size_t>(got));
        }
        requests.push_back(request);
        (void)!write(client, answer.data(), answer.size());
        // Until the client goes away.
        while (hold_open && recv(client, bytes, sizeof(bytes), 0) > 0) {
        }
        close(client);
      }
    });
  }
  ~FakeServer() {
    thread_.join();
    close(listener_);
  }

  const Url& url() const { return url_; }
  std::vector<std::string> requests;  // complete once the server is destroyed or has answered all

 private:
  int listener_;
  Url url_;
  std::thread thread_;
};

std::string Chunked(const std::vector<std::string>& chunks) {
  std::string text =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& chunk : chunks) {
    char size[32];
    snprintf(size, sizeof(size), "%zx\r\n", chunk.size());
    text += size + chunk + "\r\n";
  }
  return text + "0\r\n\r\n";
}

std::string Plain(const std::string& status, const std::string& body) {
  return "HTTP/1.1 " + status +
         "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

TEST(OpenAiClient, StreamsAChat) {
  FakeServer server({Chunked(
      {"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
       "data: {\"choices\":[{\"delta\":{\"content\":\"4\"}}]}\n\ndata: {\"choices\":[{\"del",
       "ta\":{\"content\":\"2\"},\"finish_reason\":\"stop\"}]}\n\n", "data: [DONE]\n\n"})});
  Url url = server.url();
  url.path = "/v1";
  const OpenAiClient client(url, "key");
  std::string seen;
  AnswerSettings settings;
  settings.model = "m";
  settings.temperature = 0;
  const auto end = client.Chat(settings, json::Value(json::Value::Array{}),
                               [&](std::string_view text) { seen += text; });
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(seen, "42");
  EXPECT_EQ(end->text, "42");
  EXPECT_EQ(end->finish_reason, "stop");
  ASSERT_EQ(server.requests.size(), 1u);
  EXPECT_THAT(server.requests[0], HasSubstr("POST /v1/chat/completions HTTP/1.1"));
  EXPECT_THAT(server.requests[0], HasSubstr("Authorization: Bearer key"));
  EXPECT_THAT(server.requests[0], HasSubstr("\"stream\":true"));
}

TEST(OpenAiClient, GivesTheServersOwnWordsForErrors) {
  FakeServer server({Plain("404 Not Found", "{\"error\":{\"message\":\"no such model\"}}"),
                     Chunked({"data: {\"error\":{\"message\":\"broke\"}}\n\n"}),
                     "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", "nonsense"});
  const OpenAiClient client(server.url(), "");
  const auto ask = [&] { return client.Complete({}, "x", [](std::string_view) {}); };
  auto answer = ask();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(answer.error().message, HasSubstr("no such model"));
  answer = ask();
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message, HasSubstr("broke"));
  EXPECT_FALSE(ask());
  EXPECT_FALSE(ask());
}

TEST(OpenAiClient, ListsModels) {
  FakeServer server(
      {Plain("200 OK", "{\"data\":[{\"id\":\"a\"},{\"id\":\"b\"}]}"), Plain("200 OK", "{}")});
  const OpenAiClient client(server.url(), "");
  EXPECT_THAT(*client.ListModels(), ElementsAre("a", "b"));
  EXPECT_FALSE(client.ListModels());
}

TEST(OpenAiClient, CanBeCancelled) {
  FakeServer server({"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: "
                     "{\"choices\":[{\"text\":\"ab\"}]}\n\n"},
                    /*hold_open=*/true);
  const OpenAiClient client(server.url(), "");
  const int cancel = eventfd(0, 0);
  const auto end = client.Complete(
      {}, "x",
      [&](std::string_view) {
        const uint64_t one = 1;
        (void)!write(cancel, &one, sizeof(one));
      },
      cancel);
  close(cancel);
  ASSERT_TRUE(end);
  EXPECT_TRUE(end->cancelled);
  EXPECT_EQ(end->text, "ab");
}

TEST(OpenAiClient, SaysWhenNobodyAnswers) {
  const DeafPort port;
  const std::string place = "127.0.0.1:" + std::to_string(port.number());
  const OpenAiClient client(*ParseUrl(place), "");
  const auto models = client.ListModels();
  ASSERT_FALSE(models);
  EXPECT_EQ(models.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(models.error().message, HasSubstr(place));
}

}  // namespace
}  // namespace sluice
