#include "client/stream_client.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <limits>
#include <stdexcept>
#include <thread>

#include "client/client_testing.h"
#include "client/response_parser.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kForever = std::numeric_limits<double>::infinity();

const std::string kStreamAnswer =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    "Transfer-Encoding: chunked\r\n\r\n"
    "9\r\ndata: a\n\n\r\n12\r\ndata: b\n\ndata: c\n\n\r\n0\r\n\r\n";

struct Parsed {
  std::string body;
  bool done = false, bad = false, keep_alive = false;
  int status = 0;
};

Parsed ParseInSteps(const std::string& text, size_t step) {
  ResponseParser parser;
  Parsed parsed;
  for (size_t i = 0; i < text.size() && !parsed.bad; i += step) {
    std::string_view bytes = std::string_view(text).substr(i, step);
    while (!bytes.empty() && !parser.done()) {
      const auto piece = parser.Take(bytes);
      parsed.bad = !piece.has_value();
      if (parsed.bad) break;
      parsed.body += *piece;
    }
  }
  parsed.done = parser.done();
  parsed.status = parser.status();
  parsed.keep_alive = parser.keep_alive();
  return parsed;
}

TEST(ResponseParser, BytesMayBeCutAnywhere) {
  for (size_t step = 1; step <= kStreamAnswer.size(); ++step) {
    const Parsed parsed = ParseInSteps(kStreamAnswer, step);
    EXPECT_EQ(parsed.body, "data: a\n\ndata: b\n\ndata: c\n\n") << step;
    EXPECT_TRUE(parsed.done) << step;
    EXPECT_TRUE(parsed.keep_alive);
    EXPECT_EQ(parsed.status, 200);
  }
}

TEST(ResponseParser, BodiesOfEveryLength) {
  const Parsed sized = ParseInSteps(
      "HTTP/1.1 404 Not Found\r\ncontent-LENGTH: 3\r\nConnection: close\r\n\r\nabc", 4);
  EXPECT_EQ(sized.body, "abc");
  EXPECT_TRUE(sized.done);
  EXPECT_FALSE(sized.keep_alive);
  for (const char* head : {"204 No Content\r\n", "204 No Content\r\nContent-Length: 5\r\n",
                           "304 Not Modified\r\nContent-Length: 5\r\n"}) {
    EXPECT_TRUE(ParseInSteps(std::string("HTTP/1.1 ") + head + "\r\n", 5).done) << head;
  }
  EXPECT_EQ(
      ParseInSteps("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 7)
          .body,
      "x");
  ResponseParser to_end;
  std::string_view bytes = "HTTP/1.0 200 OK\r\n\r\nabc";
  EXPECT_EQ(*to_end.Take(bytes), "abc");
  EXPECT_FALSE(to_end.done());
  EXPECT_TRUE(to_end.End());
  EXPECT_TRUE(to_end.done());
}

TEST(ResponseParser, RefusesWhatIsNoHttp) {
  for (const char* text : {"SMTP hello\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n"}) {
    EXPECT_TRUE(ParseInSteps(text, 1000).bad) << text;
  }
  EXPECT_TRUE(ParseInSteps(std::string(3 << 20, 'x'), 65536).bad);
  ResponseParser cut;
  std::string_view bytes = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab";
  ASSERT_TRUE(cut.Take(bytes));
  EXPECT_THAT(cut.End().error().message, HasSubstr("in the middle of its answer"));
}

// Answers one connection after another. `answer` receives the number of the connection and the
// number of the request on it, and returns the text to send; "" closes the connection.
class ScriptedServer {
 public:
  // Counts in `num_closed`, unless null, the connections that the client closed.
  explicit ScriptedServer(std::function<std::string(int connection, int request)> answer,
                          std::atomic<int>* num_closed = nullptr)
      : answer_(std::move(answer)), num_closed_(num_closed) {
    listener_ = ListenAt(&url_, 128);
    thread_ = std::thread([this] { Accept(); });
  }
  ~ScriptedServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    for (std::thread& thread : threads_) thread.join();
    close(listener_);
  }
  const Url& url() const { return url_; }
  int num_connections() const { return num_connections_; }

 private:
  void Accept() {
    while (true) {
      const int client = accept(listener_, nullptr, nullptr);
      if (client < 0) return;
      threads_.emplace_back([this, client, number = num_connections_++] { Talk(client, number); });
    }
  }
  void Talk(int client, int number) {
    std::string seen;
    for (int request = 0;; ++request) {
      // Requests of these tests have the body "{}".
      while (seen.find("\r\n\r\n{}") == std::string::npos) {
        char bytes[4096];
        const ssize_t got = recv(client, bytes, sizeof(bytes), 0);
        if (got <= 0) {
          if (num_closed_ != nullptr) ++*num_closed_;
          close(client);
          return;
        }
        seen.append(bytes, static_cast<size_t>(got));
      }
      seen.clear();
      const std::string text = answer_(number, request);
      if (text.empty()) {
        close(client);
        return;
      }
      send(client, text.data(), text.size(), MSG_NOSIGNAL);
    }
  }

  const std::function<std::string(int, int)> answer_;
  std::atomic<int>* const num_closed_;
  int listener_ = -1;
  Url url_;
  std::atomic<int> num_connections_{0};
  std::thread thread_;
  std::vector<std::thread> threads_;
};

struct Recorder : StreamHandler {
  void OnEvent(double now, std::string_view data) override {
    times.push_back(now);
    events.emplace_back(data);
  }
  void OnEnd(double, StreamEnd result) override {
    end = std::move(result);
    ++ends;
    if (on_end) on_end();
  }
  std::vector<double> times;
  std::vector<std::string> events;
  StreamEnd end;
  int ends = 0;
  std::function<void()> on_end;
};

std::unique_ptr<StreamClient> ClientOf(const Url& url, bool keep_alive = true) {
  return *StreamClient::Create({.url = url, .keep_alive = keep_alive});
}

void RunToEnd(StreamClient& client) {
  while (client.num_running() > 0) ASSERT_TRUE(client.Poll(kForever, -1));
}

TEST(StreamClient, ReadsEventsOfManyStreams) {
  ScriptedServer server([](int, int) { return kStreamAnswer; });
  const auto client = ClientOf(server.url());
  std::vector<Recorder> recorders(40);
  const double start = MonotonicSeconds();
  for (Recorder& recorder : recorders) client->Post("/x", "A: b\r\n", "{}", recorder);
  EXPECT_EQ(client->num_running(), 40u);
  RunToEnd(*client);
  for (const Recorder& recorder : recorders) {
    EXPECT_THAT(recorder.events, ElementsAre("a", "b", "c"));
    EXPECT_GT(recorder.times[0], start);
    EXPECT_EQ(recorder.ends, 1);
    EXPECT_EQ(recorder.end.status, 200);
    EXPECT_EQ(recorder.end.error, "");
  }
  EXPECT_EQ(server.num_connections(), 40);
}

TEST(StreamClient, UsesConnectionsAgainUnlessToldOtherwise) {
  for (bool keep_alive : {true, false}) {
    ScriptedServer server([](int, int) { return kStreamAnswer; });
    const auto client = ClientOf(server.url(), keep_alive);
    Recorder recorder;
    // Each request begins in the OnEnd of the previous one.
    recorder.on_end = [&] {
      if (recorder.ends < 5) client->Post("/x", "", "{}", recorder);
    };
    client->Post("/x", "", "{}", recorder);
    RunToEnd(*client);
    EXPECT_EQ(recorder.ends, 5);
    EXPECT_EQ(recorder.events.size(), 15u);
    EXPECT_EQ(server.num_connections(), keep_alive ? 1 : 5);
  }
}

// A server may close an idle connection at any time; the next request must not fail because of
// that.
TEST(StreamClient, ReplacesAConnectionThatWasClosedWhileIdle) {
  ScriptedServer server([](int connection, int request) {
    return connection == 0 && request == 1 ? "" : kStreamAnswer;
  });
  const auto client = ClientOf(server.url());
  Recorder first, second;
  client->Post("/x", "", "{}", first);
  RunToEnd(*client);
  client->Post("/x", "", "{}", second);
  RunToEnd(*client);
  EXPECT_EQ(second.end.error, "");
  EXPECT_THAT(second.events, ElementsAre("a", "b", "c"));
  EXPECT_EQ(server.num_connections(), 2);
}

TEST(StreamClient, NoAnswerBeginsWithBytesAfterTheLastOne) {
  const std::string other = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
  ScriptedServer server(
      [&](int connection, int) { return connection == 0 ? kStreamAnswer + other : kStreamAnswer; });
  const auto client = ClientOf(server.url());
  Recorder first, second;
  client->Post("/x", "", "{}", first);
  RunToEnd(*client);
  client->Post("/x", "", "{}", second);
  RunToEnd(*client);
  EXPECT_EQ(first.end.status, 200);
  EXPECT_EQ(second.end.status, 200);
  EXPECT_EQ(server.num_connections(), 2);
}

// Bytes that arrive while a connection is idle are detected before its next use, even without a
// Poll in between.
TEST(StreamClient, AConnectionWithUnaskedBytesIsNotUsedAgain) {
  const std::string other = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
  Url url;
  const int listener = ListenAt(&url, 8);
  std::atomic<bool> may_send{false}, has_sent{false};
  std::thread server([&] {
    const int first = accept(listener, nullptr, nullptr);
    EXPECT_EQ(write(first, kStreamAnswer.data(), kStreamAnswer.size()), std::ssize(kStreamAnswer));
    while (!may_send) usleep(1000);
    EXPECT_EQ(write(first, other.data(), other.size()), std::ssize(other));
    has_sent = true;
    const int second = accept(listener, nullptr, nullptr);
    EXPECT_EQ(write(second, kStreamAnswer.data(), kStreamAnswer.size()), std::ssize(kStreamAnswer));
    char byte = 0;
    while (second >= 0 && recv(second, &byte, 1, 0) > 0) {
    }
    close(first);
    close(second);
  });
  {
    const auto client = *StreamClient::Create({.url = url, .timeout_seconds = 10});
    Recorder first, second;
    client->Post("/x", "", "{}", first);
    RunToEnd(*client);
    may_send = true;
    while (!has_sent) usleep(1000);
    client->Post("/x", "", "{}", second);
    RunToEnd(*client);
    EXPECT_EQ(second.end.status, 200);
  }
  shutdown(listener, SHUT_RDWR);
  server.join();
  close(listener);
}

TEST(StreamClient, AnswersThatAreNoStreams) {
  ScriptedServer server([](int, int) {
    return "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: "
           "13\r\n\r\n{\"error\":\"no\"}";
  });
  const auto client = ClientOf(server.url());
  Recorder recorder;
  client->Post("/x", "", "{}", recorder);
  RunToEnd(*client);
  EXPECT_THAT(recorder.events, IsEmpty());
  EXPECT_EQ(recorder.end.status, 400);
  EXPECT_EQ(recorder.end.body, "{\"error\":\"no\"");
}

TEST(StreamClient, AConnectionThatIsClosedWithoutAnAnswer) {
  ScriptedServer server([](int, int) { return ""; });
  const auto client = ClientOf(server.url());
  Recorder closed;
  client->Post("/x", "", "{}", closed);
  RunToEnd(*client);
  EXPECT_THAT(closed.end.error, HasSubstr("without an answer"));
}

// If a server refuses a request before reading all of it, the server treats everything that follows
// as the rest of that request.
TEST(StreamClient, AnAnswerBeforeAllIsSentEndsTheConnection) {
  const std::string refusal = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\n{}";
  Url url;
  const int listener = ListenAt(&url, 8);
  std::thread server([&] {
    const int first = accept(listener, nullptr, nullptr);
    char byte = 0;
    EXPECT_EQ(recv(first, &byte, 1, 0), 1);
    EXPECT_EQ(write(first, refusal.data(), refusal.size()), std::ssize(refusal));
    const int second = accept(listener, nullptr, nullptr);
    EXPECT_EQ(write(second, refusal.data(), refusal.size()), std::ssize(refusal));
    std::string rest(1 << 20, ' ');
    while (second >= 0 && recv(second, rest.data(), rest.size(), 0) > 0) {
    }
    close(first);
    close(second);
  });
  {
    const auto client = *StreamClient::Create({.url = url, .timeout_seconds = 60});
    Recorder large, small;
    large.on_end = [&] { client->Post("/x", "", "{}", small); };
    // Larger than the socket buffers of both ends.
    client->Post("/x", "", std::string(size_t{64} << 20, 'x'), large);
    RunToEnd(*client);
    EXPECT_EQ(large.end.status, 413);
    EXPECT_EQ(small.end.error, "");
    EXPECT_EQ(small.end.status, 413);
  }
  shutdown(listener, SHUT_RDWR);
  server.join();
  close(listener);
}

TEST(StreamClient, NobodyListens) {
  const DeafPort port;
  const auto client = ClientOf({"127.0.0.1", port.number(), ""});
  std::vector<Recorder> recorders(3);
  for (Recorder& recorder : recorders) client->Post("/x", "", "{}", recorder);
  RunToEnd(*client);
  for (const Recorder& recorder : recorders) {
    EXPECT_EQ(recorder.end.status, 0);
    EXPECT_THAT(recorder.end.error, HasSubstr("Cannot connect to host 127.0.0.1"));
  }
  EXPECT_FALSE(StreamClient::Create({.url = {"no.such.host.invalid", 80, ""}}));
}

TEST(StreamClient, SaysWhenNoFileMayBeOpened) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto client = StreamClient::Create({.url = {"127.0.0.1", 1, ""}});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(client.error().message, HasSubstr("ulimit -n"));
}

TEST(StreamClient, WaitsNoLongerThanToldAndStopsWhenCancelled) {
  ScriptedServer server([](int, int) { return kStreamAnswer.substr(0, 120); });
  const auto client = ClientOf(server.url());
  Recorder recorder;
  client->Post("/x", "", "{}", recorder);
  const double start = MonotonicSeconds();
  while (MonotonicSeconds() < start + 0.05) ASSERT_TRUE(client->Poll(start + 0.05, -1));
  EXPECT_LT(MonotonicSeconds(), start + 60);
  const int cancel = eventfd(1, 0);
  while (client->Poll(kForever, cancel)) {
  }
  EXPECT_EQ(recorder.ends, 0);
  EXPECT_EQ(client->num_running(), 1u);
  close(cancel);
}

TEST(StreamClient, RequestsThatTakeTooLongFail) {
  ScriptedServer server([](int, int) { return kStreamAnswer.substr(0, 120); });
  const auto client = *StreamClient::Create({.url = server.url(), .timeout_seconds = 0.05});
  Recorder recorder;
  client->Post("/x", "", "{}", recorder);
  RunToEnd(*client);
  EXPECT_THAT(recorder.end.error, HasSubstr("within 0.05 s"));
}

// Receives the raw bytes of an answer, as a proxy does.
struct Copier : StreamHandler {
  bool wants_bytes() const override { return true; }
  void OnEvent(double, std::string_view) override { ++events; }
  void OnHead(int status, std::string_view head) override {
    statuses.push_back(status);
    heads.emplace_back(head);
  }
  void OnBytes(std::string_view bytes) override {
    body += bytes;
    if (on_bytes) on_bytes();
  }
  void OnEnd(double, StreamEnd result) override {
    end = std::move(result);
    ++ends;
    if (on_end) on_end();
  }
  std::function<void()> on_bytes, on_end;
  std::vector<int> statuses;
  std::vector<std::string> heads;
  std::string body;
  StreamEnd end;
  int events = 0, ends = 0;
};

TEST(StreamClient, ForwardsAnswersAsTheyAre) {
  ScriptedServer server([](int, int request) {
    return request == 0
               ? kStreamAnswer
               : std::string("HTTP/1.1 404 Not Found\r\nX-A: b\r\nContent-Length: 3\r\n\r\nabc");
  });
  const auto client = ClientOf(server.url());
  for (int i = 0; i < 2; ++i) {
    Copier copier;
    client->Forward("PUT", "/x", "content-length: 2\r\n", "{}", copier);
    RunToEnd(*client);
    EXPECT_EQ(copier.body, i == 0 ? "data: a\n\ndata: b\n\ndata: c\n\n" : "abc");
    EXPECT_THAT(copier.statuses, ElementsAre(i == 0 ? 200 : 404));
    EXPECT_THAT(copier.heads[0], HasSubstr(i == 0 ? "Transfer-Encoding: chunked" : "X-A: b"));
    EXPECT_EQ(copier.end.error, "");
    EXPECT_EQ(copier.end.body, "");
    EXPECT_EQ(copier.events, 0);
    EXPECT_EQ(copier.ends, 1);
  }
  EXPECT_EQ(server.num_connections(), 1);
}

TEST(StreamClient, CancelsOneRequest) {
  ScriptedServer server([](int connection, int) {
    return connection == 0 ? kStreamAnswer.substr(0, 120) : kStreamAnswer;
  });
  const auto client = ClientOf(server.url());
  Copier given_up, other;
  client->Forward("POST", "/x", "", "{}", given_up);
  while (given_up.body.empty()) ASSERT_TRUE(client->Poll(kForever, -1));
  client->Forward("POST", "/x", "", "{}", other);
  client->Cancel(given_up);
  client->Cancel(given_up);
  EXPECT_EQ(client->num_running(), 1u);
  RunToEnd(*client);
  EXPECT_EQ(given_up.ends, 0);
  EXPECT_EQ(other.ends, 1);
}

TEST(StreamClient, AnExceptionFailsOneRequest) {
  ScriptedServer server([](int, int) { return kStreamAnswer; });
  const auto client = ClientOf(server.url());
  Copier failing, after, other;
  failing.on_bytes = [] { throw std::runtime_error("no room"); };
  after.on_end = [] { throw std::runtime_error("no room"); };
  for (Copier* copier : {&failing, &after, &other})
    client->Forward("POST", "/x", "", "{}", *copier);
  RunToEnd(*client);
  EXPECT_THAT(failing.end.error, HasSubstr("no room"));
  EXPECT_EQ(failing.ends, 1);
  EXPECT_EQ(after.ends, 1);
  EXPECT_EQ(other.end.error, "");
  EXPECT_EQ(other.body, "data: a\n\ndata: b\n\ndata: c\n\n");
}

TEST(StreamClient, PausedAnswersAreNotRead) {
  ScriptedServer server([](int, int) { return kStreamAnswer; });
  const auto client = ClientOf(server.url());
  Copier copier;
  client->Forward("POST", "/x", "", "{}", copier);
  // The connection is made and the request sent, but nothing is read.
  client->Pause(copier, true);
  const double until = MonotonicSeconds() + 0.2;
  while (MonotonicSeconds() < until) ASSERT_TRUE(client->Poll(until, -1));
  EXPECT_EQ(copier.body, "");
  client->Pause(copier, false);
  RunToEnd(*client);
  EXPECT_EQ(copier.body, "data: a\n\ndata: b\n\ndata: c\n\n");
}

TEST(StreamClient, KeepsFewIdleConnections) {
  std::atomic<int> num_closed{0};
  ScriptedServer server([](int, int) { return kStreamAnswer; }, &num_closed);
  const auto client = ClientOf(server.url());
  std::vector<Recorder> recorders(80);
  for (Recorder& recorder : recorders) client->Post("/x", "", "{}", recorder);
  RunToEnd(*client);
  const double limit = MonotonicSeconds() + 30;
  while (num_closed < 16 && MonotonicSeconds() < limit) usleep(1000);
  EXPECT_EQ(num_closed, 16);
}

// The handler pauses at the first bytes, which may already contain the whole answer.
TEST(StreamClient, APauseEndsWithItsRequest) {
  ScriptedServer server([](int, int) { return kStreamAnswer; });
  const auto client = *StreamClient::Create({.url = server.url(), .timeout_seconds = 5});
  Copier stalled, next;
  stalled.on_bytes = [&] { client->Pause(stalled, true); };
  client->Forward("POST", "/x", "", "{}", stalled);
  RunToEnd(*client);
  EXPECT_EQ(stalled.end.error, "");
  client->Forward("POST", "/x", "", "{}", next);
  RunToEnd(*client);
  EXPECT_EQ(next.end.error, "");
  EXPECT_EQ(next.body, stalled.body);
  EXPECT_EQ(server.num_connections(), 1);
}

}  // namespace
}  // namespace sluice
