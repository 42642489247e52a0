#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

#include "client/client_testing.h"
#include "client/event_stream.h"
#include "client/http_client.h"
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
  EXPECT_TRUE(ParseUrl("https://h")->tls);
  EXPECT_EQ(ParseUrl("https://h")->port, 443);
  EXPECT_EQ(ParseUrl("https://h:8443/v1")->path, "/v1");
  const Url socket = *ParseUrl("unix:///run/sluice.sock");
  EXPECT_EQ(socket.socket, "/run/sluice.sock");
  EXPECT_FALSE(socket.tls);
  for (const char* text : {"http://h:1", "https://h:443", "http://[::1]:99", "unix:///a/b"})
    EXPECT_EQ(ServerText(*ParseUrl(text)), text);
  EXPECT_FALSE(ParseUrl("unix://run/sluice.sock"));
  EXPECT_FALSE(ParseUrl("unix:///" + std::string(200, 'a')));
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

// Answers each connection with the next one of the given texts, and closes the connection.
class FakeServer {
 public:
  explicit FakeServer(std::vector<std::string> answers, bool hold_open = false) {
    listener_ = ListenAt(&url_, 8);
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
        // Keeps the connection open until the client closes it.
        while (hold_open && recv(client, bytes, sizeof(bytes), 0) > 0) {
        }
        close(client);
      }
    });
  }
  ~FakeServer() {
    shutdown(listener_, SHUT_RDWR);  // ends the wait for connections that a failed test never made
    thread_.join();
    close(listener_);
  }

  const Url& url() const { return url_; }
  std::vector<std::string> requests;  // complete once all requests are answered or the server is
                                      // destroyed

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

// This time is far longer than any of these tests takes on a slow machine.
constexpr auto kPatience = std::chrono::seconds(60);

// Accepts one connection, reads up to `wanted` bytes of the request, calls `then` with the socket,
// and reads no more. Closes the connection when destroyed or after a while, so that the test of a
// client that hangs fails.
class StuckServer {
 public:
  StuckServer(size_t wanted, std::function<void(int client)> then) {
    listener_ = ListenAt(&url_, 8);
    thread_ = std::thread([this, wanted, then = std::move(then)] {
      const int client = accept(listener_, nullptr, nullptr);
      std::string bytes(wanted, ' ');
      EXPECT_EQ(recv(client, bytes.data(), wanted, MSG_WAITALL), static_cast<ssize_t>(wanted));
      then(client);
      done_.get_future().wait_for(kPatience);
      close(client);
    });
  }
  ~StuckServer() {
    done_.set_value();
    thread_.join();
    close(listener_);
  }
  const Url& url() const { return url_; }

 private:
  int listener_;
  Url url_;
  std::promise<void> done_;
  std::thread thread_;
};

// Larger than the socket buffers of both ends of a connection.
const std::string& LargeBody() {
  static const std::string body(size_t{64} << 20, 'x');
  return body;
}

class Event {
 public:
  Event() : fd_(eventfd(0, 0)) {}
  ~Event() { close(fd_); }
  void Set() {
    const uint64_t one = 1;
    EXPECT_EQ(write(fd_, &one, sizeof(one)), ssize_t{sizeof(one)});
  }
  int fd() const { return fd_; }

 private:
  const int fd_;
};

bool IgnoreEvent(std::string_view) {
  return true;
}

TEST(HttpClient, CanBeCancelledWhileItSends) {
  Event cancel;
  StuckServer server(1, [&](int) { cancel.Set(); });
  const auto answer =
      HttpClient(server.url()).PostStream("/", LargeBody(), IgnoreEvent, cancel.fd());
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kCancelled) << answer.error().message;
}

TEST(HttpClient, CanBeCancelledWhileItConnects) {
  // Once its queue is full, a listener does not accept or refuse connections.
  Url url;
  const int listener = ListenAt(&url, 0);
  std::vector<int> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.push_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    sockaddr_in address = LoopbackAt(url.port);
    (void)connect(waiting.back(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  }
  // Closes the connection after a while, so that the test fails if the client cannot be cancelled.
  std::promise<void> done;
  std::thread patience([&, over = done.get_future()] {
    over.wait_for(kPatience);
    close(listener);
  });
  Event cancel;
  cancel.Set();
  const auto answer = HttpClient(url).PostStream("/", "{}", IgnoreEvent, cancel.fd());
  done.set_value();
  patience.join();
  for (int fd : waiting) close(fd);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kCancelled) << answer.error().message;
}

// A server that refuses a request may answer before it has read the whole request.
TEST(HttpClient, ReadsAnAnswerThatComesBeforeAllIsSent) {
  StuckServer server(1, [&](int client) {
    const std::string text = Plain("413 Content Too Large", "{}");
    EXPECT_EQ(write(client, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  });
  const auto answer = HttpClient(server.url()).Post("/", LargeBody());
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->status, 413);
  EXPECT_EQ(answer->body, "{}");
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
