// The connection layer over real sockets on 127.0.0.1, with a handler whose behavior depends on the
// path.
#include "server/http/http_server.h"

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/work_budget.h"
#include "server/http/raw_client_testing.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class TestHandler : public HttpHandler {
 public:
  std::optional<HttpResponse> CheckHead(const HttpRequest& head) override {
    if (head.path != "/denied") return std::nullopt;
    HttpResponse response;
    response.status = 401;
    response.body = "denied";
    return response;
  }
  void Handle(HttpRequest request, std::shared_ptr<ResponseWriter> writer) override {
    if (request.path == "/hold" || request.path == "/late") {
      std::lock_guard lock(mutex);
      if (request.path == "/hold") writer->SetCallbacks([this] { ++closed; }, [] {});
      held = writer;
      ++handled;  // incremented last, so that a thread that sees the count also sees the writer
      return;
    }
    ++handled;
    if (request.path == "/drop") return;
    if (request.path == "/flood") {
      HttpResponse head;
      head.content_type = "text/plain";
      writer->StartStream(head);
      {
        std::lock_guard lock(mutex);
        held = writer;
        writer->SetCallbacks([this] { ++closed; }, [this] { Flood(); });
      }
      return Flood();
    }
    HttpResponse response;
    response.content_type = "text/plain";
    if (request.path.starts_with("/memory/")) {
      response.body = std::string(500, 'x');
      const WorkLimits limits = {.cpu_seconds = 1e9, .bytes = std::stoi(request.path.substr(8))};
      try {
        const WorkBudget budget(limits);
        writer->Send(std::move(response));
      } catch (const std::bad_alloc&) {
        ++refused;
      }
      return;
    }
    if (request.path == "/large") {
      response.body = std::string(1'000'000, 'x');
      return writer->Send(std::move(response));
    }
    response.body = request.method + " " + request.path + " " + std::to_string(request.body.size());
    writer->Send(std::move(response));
  }
  std::vector<HttpHeader> CommonHeaders(const HttpRequest&, int) override {
    ++headed;
    return {{"x-common", "1"}};
  }

  // Writes at most `kFlood` bytes, as long as the client keeps up.
  void Flood() {
    std::lock_guard lock(mutex);
    const std::string piece(8192, 'x');
    while (held != nullptr && flooded < kFlood && !held->backlogged()) {
      held->WriteChunk(piece);
      flooded += piece.size();
    }
    if (held != nullptr && flooded >= kFlood) {
      held->EndStream();
      held.reset();
    }
  }

  static constexpr size_t kFlood = size_t{32} << 20;
  std::mutex mutex;
  std::shared_ptr<ResponseWriter> held;
  std::atomic<int> handled{0}, closed{0}, headed{0};
  std::atomic<int> refused{0};  // answers for which memory ran out
  std::atomic<size_t> flooded{0};
};

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(ServerConfig config = {}) {
    Listen(std::move(config));
    server_->Start();
  }
  // Data that clients send before Start() waits in the sockets.
  void Listen(ServerConfig config) {
    config.host = "127.0.0.1";
    config.port = 0;
    Result<std::unique_ptr<HttpServer>> server =
        HttpServer::Listen(config, memory_, &handler_, [this](const HttpExchangeRecord& record) {
          std::lock_guard lock(handler_.mutex);
          statuses_.push_back(record.status);
        });
    ASSERT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
  }
  void TearDown() override {
    {
      std::lock_guard lock(handler_.mutex);
      handler_.held.reset();
    }
    server_.reset();
  }
  template <typename Condition>
  bool Eventually(Condition condition) {
    for (int i = 0; i < 12000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }
  // Sends the bytes. Returns the server's reply up to `until`, or until the server closes the
  // connection.
  std::string Exchange(const std::string& bytes, const std::string& until = "") {
    RawClient client(server_->port());
    client.Send(bytes);
    return client.ReadUntil(until);
  }

  const std::shared_ptr<RequestMemory> memory_ =
      std::make_shared<RequestMemory>(uint64_t{64} << 20);
  TestHandler handler_;
  std::vector<int> statuses_;
  std::unique_ptr<HttpServer> server_;
};

// At whichever allocation memory runs out, the client gets an answer, or the connection is cut.
TEST_F(HttpServerTest, LackOfMemoryLeavesNoClientWaiting) {
  Start();
  int answered = 0;
  for (int limit = 0; limit < 4096; limit += 32) {
    RawClient client(server_->port());
    client.Send("GET /memory/" + std::to_string(limit) +
                " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    const std::string reply = client.ReadAll();
    ASSERT_TRUE(client.closed()) << limit << " bytes: " << reply;
    answered += reply.starts_with("HTTP/1.1 200") && reply.ends_with(std::string(500, 'x'));
  }
  EXPECT_GT(handler_.refused, 0);
  EXPECT_GT(answered, 0);
}

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  Start();
  RawClient client(server_->port());
  for (int i = 0; i < 3; ++i) {
    client.Send("GET /a%20b?q=1 HTTP/1.1\r\nHost: x\r\n\r\n");
    const std::string answer = client.ReadUntil("GET /a b 0");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(answer, HasSubstr("content-length: 10\r\n"));
    EXPECT_THAT(answer, HasSubstr("x-common: 1\r\n"));
    EXPECT_EQ(answer.find("connection:"), std::string::npos);
  }
  EXPECT_EQ(server_->num_connections(), 1);
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  Start();
  std::string requests;
  for (int i = 0; i < 50; ++i)
    requests += "GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: x\r\n\r\n";
  requests += "GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  const std::string answers = Exchange(requests);
  size_t at = 0;
  for (int i = 0; i < 50; ++i) {
    at = answers.find("GET /" + std::to_string(i) + " 0", at);
    ASSERT_NE(at, std::string::npos) << i;
  }
  EXPECT_NE(answers.find("GET /last 0", at), std::string::npos);
}

TEST_F(HttpServerTest, ReadsBodiesInEveryFraming) {
  Start();
  EXPECT_THAT(
      Exchange(
          "POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"),
      HasSubstr("POST /p 5"));
  EXPECT_THAT(
      Exchange(
          "POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
          "3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n"),
      HasSubstr("POST /p 7"));
  EXPECT_THAT(Exchange("GET /p HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
              HasSubstr("connection: close"));
  EXPECT_THAT(Exchange("GET http://a.example/p?x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              HasSubstr("GET /p 0"));
  RawClient client(server_->port());
  client.Send(
      "POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\nConnection: "
      "close\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), StartsWith("HTTP/1.1 100 Continue"));
  client.Send("hello");
  EXPECT_THAT(client.ReadAll(), HasSubstr("POST /p 5"));
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  Start();
  const std::string answer = Exchange("HEAD /p HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("content-length: 9\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\n"));
}

TEST_F(HttpServerTest, RefusesWhatIsNotHttp) {
  Start();
  using namespace std::string_literals;
  const std::string bad[] = {
      "hello\r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      "GET /p HTTP/1.1\r\nHost: x\r\nBad Header\r\n\r\n",
      "post /p HTTP/1.1\r\nHost: x\r\n\r\n",
      "FOO /p HTTP/1.1\r\nHost: x\r\n\r\n",
      "POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n",
      "POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
      "POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
      "POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: "
      "chunked\r\n\r\n0\r\n\r\n",
      "POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nab\r\n0\r\n\r\n",
      "POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nab\r\n0\r\n\r\n",
      "POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
      "chunked\r\n\r\n11111111111111111\r\nab\r\n0\r\n\r\n",
      "GET /p HTTP/1.1\r\nHost: a\0b\r\n\r\n"s,
  };
  for (const std::string& request : bad) {
    const std::string answer = Exchange(request);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 ")) << request;
    EXPECT_THAT(answer, HasSubstr("connection: close")) << request;
  }
  EXPECT_EQ(handler_.handled, 0);
}

TEST_F(HttpServerTest, KeepsItsLimits) {
  ServerConfig config;
  config.max_body_bytes = 1000;
  config.max_header_bytes = 2000;
  Start(config);
  const std::string fits(1000, 'b');
  EXPECT_THAT(
      Exchange("POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nConnection: close\r\n\r\n" +
               fits),
      HasSubstr("POST /p 1000"));
  EXPECT_THAT(Exchange("POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n" + fits + "b"),
              StartsWith("HTTP/1.1 413 "));
  std::string chunks = "POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 1001; ++i) chunks += "1\r\nx\r\n";
  EXPECT_THAT(Exchange(chunks + "0\r\n\r\n"), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(Exchange("GET /p HTTP/1.1\r\nHost: x\r\nX: " + std::string(3000, 'h') + "\r\n\r\n"),
              StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(Exchange("GET /" + std::string(3000, 'p')), StartsWith("HTTP/1.1 431 "));
}

TEST_F(HttpServerTest, LimitsWhatStandsBetweenChunks) {
  ServerConfig config;
  config.max_header_bytes = 2000;
  Start(config);
  const std::string head =
      "POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n";
  const std::string endless(3000, 'x');
  for (const std::string& begin : {"2;" + endless, "0\r\nA: " + endless, "0\r\n" + endless})
    EXPECT_THAT(Exchange(head + begin), StartsWith("HTTP/1.1 431 ")) << begin.substr(0, 8);
  const std::string fits(1000, 'x');
  EXPECT_THAT(
      Exchange(
          "POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
          "2;" +
          fits + "\r\nab\r\n0\r\nA: " + fits + "\r\n\r\n"),
      HasSubstr("POST /p 2"));
}

TEST_F(HttpServerTest, LimitsWhatAllRequestsTogetherHold) {
  ServerConfig config;
  memory_->SetPlanned(2'000'000);
  config.max_body_bytes = 2'000'000;
  Start(config);
  const auto post = [](size_t length, size_t sent) {
    return "POST /p HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: " +
           std::to_string(length) + "\r\n\r\n" + std::string(sent, 'x');
  };
  const std::string large = post(600'000, 600'000),
                    answer = "GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  EXPECT_THAT(Exchange(large), HasSubstr("POST /p 600000"));
  // A body that never fits is refused before it is sent.
  const std::string refusal = Exchange(post(1'800'000, 0));
  EXPECT_THAT(refusal, StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(refusal, HasSubstr("needs 1800000 bytes"));
  EXPECT_THAT(refusal, HasSubstr("may use at most 1750000"));
  EXPECT_THAT(refusal, HasSubstr("--request-memory-bytes (now 2000000)"));
  ASSERT_TRUE(Eventually([&] { return memory_->used() == 0; }));
  std::vector<std::unique_ptr<RawClient>> slow;
  for (const uint64_t held : {500'000, 1'000'000}) {
    slow.push_back(std::make_unique<RawClient>(server_->port()));
    slow.back()->Send(post(500'000, 499'000));
    // The rest of the body needs no more memory: it is already reserved and cannot be refused.
    ASSERT_TRUE(Eventually([&] { return memory_->used() >= held; }));
  }
  EXPECT_TRUE(Eventually([&] {
    const std::string full = Exchange(large);
    return full.starts_with("HTTP/1.1 503") && full.find("retry-after: 1") != std::string::npos;
  }));
  EXPECT_THAT(Exchange(answer), StartsWith("HTTP/1.1 503"));
  // Small requests are still served.
  EXPECT_THAT(Exchange(post(1000, 1000)), HasSubstr("POST /p 1000"));
  slow.clear();
  EXPECT_TRUE(Eventually([&] { return memory_->used() == 0; }));
  EXPECT_TRUE(Eventually([&] { return Exchange(large).starts_with("HTTP/1.1 200"); }));
  EXPECT_THAT(Exchange(answer), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, LimitsTheNumberOfConnections) {
  ServerConfig config;
  config.max_connections = 2;
  Start(config);
  RawClient first(server_->port()), second(server_->port());
  ASSERT_TRUE(Eventually([&] { return server_->num_connections() == 2; }));
  RawClient third(server_->port());
  EXPECT_THAT(third.ReadAll(), StartsWith("HTTP/1.1 503 "));
  first.Close();
  ASSERT_TRUE(Eventually([&] { return server_->num_connections() == 1; }));
  EXPECT_THAT(Exchange("GET /p HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              HasSubstr("GET /p 0"));
}

TEST_F(HttpServerTest, TimesOutSlowRequests) {
  ServerConfig config;
  // This timeout is long enough for a delayed thread to read the data that was sent before.
  config.header_timeout_seconds = 1;
  config.body_timeout_seconds = 0.3;
  config.keep_alive_seconds = 0.3;
  Listen(config);
  RawClient silent(server_->port()), head(server_->port()), body(server_->port()),
      idle(server_->port());
  head.Send("GET /p HT");
  body.Send("POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  idle.Send("GET /p HTTP/1.1\r\nHost: x\r\n\r\n");
  server_->Start();  // The timeouts begin when everything has been sent.
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_TRUE(silent.closed());
  EXPECT_THAT(head.ReadAll(), StartsWith("HTTP/1.1 408 "));
  EXPECT_THAT(body.ReadAll(), StartsWith("HTTP/1.1 408 "));
  EXPECT_THAT(idle.ReadAll(), HasSubstr("GET /p 0"));
  EXPECT_TRUE(idle.closed());
}

TEST_F(HttpServerTest, TellsWhenTheClientHasGone) {
  Start();
  {
    RawClient client(server_->port());
    client.Send("POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    ASSERT_TRUE(Eventually([&] { return handler_.handled == 1; }));
    EXPECT_EQ(handler_.closed, 0);
  }
  EXPECT_TRUE(Eventually([&] { return handler_.closed == 1; }));
  EXPECT_TRUE(Eventually([&] { return server_->num_exchanges() == 0; }));
  EXPECT_TRUE(handler_.held->closed());
  handler_.held->Send({});  // has no effect, because the client has disconnected
  std::lock_guard lock(handler_.mutex);
  EXPECT_THAT(statuses_, ::testing::ElementsAre(499)) << "no fault of the server";
}

TEST_F(HttpServerTest, AnswersAQuickRequestOfAHalfClosedClient) {
  Start();
  RawClient client(server_->port());
  client.Send("GET /p HTTP/1.1\r\nHost: x\r\n\r\n");
  client.HalfClose();
  EXPECT_THAT(client.ReadAll(), HasSubstr("GET /p 0"));
}

TEST_F(HttpServerTest, AWriterOutlivesTheServerAndDoesNothing) {
  Start();
  RawClient client(server_->port());
  client.Send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return handler_.handled == 1; }));
  std::shared_ptr<ResponseWriter> writer = std::move(handler_.held);
  server_.reset();
  EXPECT_EQ(handler_.closed, 1);
  writer->Send({});
  writer.reset();
  EXPECT_EQ(handler_.headed, 0) << "the handler may be gone by then";
}

// A server with two threads; `record` holds a token that exists as long as the server or a
// connection.
class HttpStopTest : public HttpServerTest {
 protected:
  std::unique_ptr<HttpServer> StartAnother() {
    auto token = std::make_shared<int>(0);
    alive_ = token;
    ServerConfig config;
    config.host = "127.0.0.1";
    config.port = 0;
    config.io_threads = 2;
    auto server = HttpServer::Listen(config, memory_, &handler_,
                                     [token = std::move(token)](const HttpExchangeRecord&) {});
    EXPECT_TRUE(server) << server.error().message;
    (*server)->Start();
    return *std::move(server);
  }
  std::weak_ptr<int> alive_;
};

TEST_F(HttpServerTest, AnAnswerBehindTheStartOfAStreamCutsIt) {
  Start();
  RawClient client(server_->port());
  client.Send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return handler_.handled > 0; }));
  const auto writer = std::move(handler_.held);
  writer->StartStream({});
  writer->WriteChunk("begun");
  EXPECT_THAT(client.ReadUntil("begun\r\n"), StartsWith("HTTP/1.1 200"));
  writer->Send({});
  EXPECT_EQ(client.ReadAll(), "") << "no second head, and no end of the chunks";
}

TEST_F(HttpStopTest, LeavesNothingWhileAStreamIsWritten) {
  for (int i = 0; i < 40; ++i) {
    std::unique_ptr<HttpServer> server = StartAnother();
    RawClient client(server->port());
    const int before = handler_.handled;
    client.Send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    ASSERT_TRUE(Eventually([&] { return handler_.handled > before; }));
    std::atomic<bool> over{false};
    std::thread writing([&, writer = std::move(handler_.held)] {
      writer->StartStream({});
      while (!over) writer->WriteChunk("x");
    });
    server.reset();
    over = true;
    writing.join();
    EXPECT_TRUE(alive_.expired()) << i;
  }
}

TEST_F(HttpStopTest, LeavesNothingWhileConnectionsAreMade) {
  for (int i = 0; i < 60; ++i) {
    std::unique_ptr<HttpServer> server = StartAnother();
    std::atomic<bool> over{false};
    std::latch made(1);
    std::thread connecting([&, port = server->port()] {
      for (int count = 0; !over; ++count) {
        RawClient client(port);
        if (count == 1) made.count_down();
      }
    });
    made.wait();
    server.reset();
    over = true;
    connecting.join();
    EXPECT_TRUE(alive_.expired()) << i;
  }
}

TEST_F(HttpServerTest, CountsAnAnswerToAHalfClosedClientOnce) {
  Start();
  RawClient client(server_->port());
  client.Send("GET /late HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return handler_.handled == 1; }));
  client.HalfClose();
  // The server's only thread has seen the half-close before it answers this later request.
  EXPECT_THAT(Exchange("GET /p HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              HasSubstr("GET /p 0"));
  HttpResponse response;
  response.body = "late";
  std::exchange(handler_.held, nullptr)->Send(std::move(response));
  EXPECT_THAT(client.ReadAll(), HasSubstr("late"));
  ASSERT_TRUE(Eventually([&] { return server_->num_connections() == 0; }));
  EXPECT_EQ(server_->num_exchanges(), 0);
  std::lock_guard lock(handler_.mutex);
  EXPECT_THAT(statuses_, ::testing::ElementsAre(200, 200));
}

// The request is answered whether the client half-closes before or after a callback is set.
TEST_F(HttpServerTest, AnswersAGenerationOfAHalfClosedClient) {
  Start();
  for (const bool streamed : {false, true}) {
    const int before = handler_.handled;
    RawClient client(server_->port());
    client.Send("POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab");
    ASSERT_TRUE(Eventually([&] { return handler_.handled > before; }));
    client.HalfClose();
    EXPECT_THAT(Exchange("GET /p HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
                HasSubstr("GET /p 0"));
    const auto writer = std::exchange(handler_.held, nullptr);
    HttpResponse response;
    response.body = "late";
    if (streamed) {
      writer->StartStream(response);
      writer->WriteChunk("late");
      writer->EndStream();
    } else {
      writer->Send(response);
    }
    EXPECT_THAT(client.ReadAll(), ::testing::AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("late")));
    EXPECT_TRUE(client.closed());
  }
  EXPECT_EQ(handler_.closed, 0);
}

TEST_F(HttpServerTest, AnswersAllPipelinedRequestsOfAHalfClosedClient) {
  Start();
  RawClient client(server_->port());
  client.Send(
      "POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab"
      "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
      "GET /c HTTP/1.1\r\nHost: x\r\n\r\n"
      "POST /cut HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc");
  client.HalfClose();
  ASSERT_TRUE(Eventually([&] { return handler_.handled == 1; }));
  std::exchange(handler_.held, nullptr)->Send({});
  const std::string answers = client.ReadAll();
  EXPECT_THAT(answers, ::testing::ContainsRegex("POST /b 3(.|\n)*GET /c 0"));
  EXPECT_TRUE(client.closed());
  EXPECT_EQ(handler_.handled, 3) << "what is not complete is not a request";
  EXPECT_TRUE(Eventually([&] { return server_->num_connections() == 0; }));
}

// The server checks by sending an interim response.
TEST_F(HttpServerTest, AsksNowAndThenWhetherAHalfClosedClientIsThere) {
  Start();
  RawClient client(server_->port());
  client.Send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return handler_.handled == 1; }));
  client.HalfClose();
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(handler_.closed, 0);
  client.Close();
  EXPECT_TRUE(Eventually([&] { return handler_.closed == 1; }));
}

TEST_F(HttpServerTest, TellsOfARequestThatTheServersEndCutOff) {
  Start();
  RawClient client(server_->port());
  client.Send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return handler_.handled == 1; }));
  server_->Stop();
  EXPECT_EQ(client.ReadAll(), "");
  EXPECT_THAT(statuses_, ::testing::ElementsAre(503));
}

TEST_F(HttpServerTest, AnswersForADroppedRequest) {
  Start();
  EXPECT_THAT(Exchange("GET /drop HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              StartsWith("HTTP/1.1 500 "));
}

TEST_F(HttpServerTest, HoldsBackASlowReaderAndServesOthers) {
  Start();
  RawClient slow(server_->port(), 65536);
  slow.Send("GET /flood HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  size_t before = 1;
  ASSERT_TRUE(Eventually([&] {
    const bool stuck = handler_.flooded > 0 && handler_.flooded == before;
    before = handler_.flooded;
    std::this_thread::sleep_for(50ms);
    return stuck;
  }));
  // At most the capacity of sockets and backlog was written, not the whole 32 MB.
  EXPECT_LT(handler_.flooded, size_t{16} << 20);
  EXPECT_THAT(Exchange("GET /p HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              HasSubstr("GET /p 0"));
  EXPECT_GE(slow.ReadAll().size(), TestHandler::kFlood);
}

TEST_F(HttpServerTest, DropsAClientThatReadsNothing) {
  ServerConfig config;
  config.write_timeout_seconds = 0.3;
  Start(config);
  RawClient slow(server_->port(), 4096);
  slow.Send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(Eventually([&] { return handler_.closed == 1; }));
}

TEST_F(HttpServerTest, TakesLongFieldsAndLimitsTheirNumber) {
  ServerConfig config;
  config.max_header_bytes = 4 << 20;
  Start(config);
  const auto get = [&](const std::string& target, const std::string& fields) {
    return Exchange("GET " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + fields +
                    "\r\n");
  };
  for (const size_t size : {size_t{65534}, size_t{65536}, size_t{200000}}) {
    EXPECT_THAT(get("/p", "x-long: " + std::string(size, 'a') + "\r\n"),
                StartsWith("HTTP/1.1 200 "))
        << size;
    EXPECT_THAT(get("/p", std::string(size, 'n') + ": a\r\n"), StartsWith("HTTP/1.1 200 ")) << size;
    EXPECT_THAT(get("/" + std::string(size, 'p'), ""), StartsWith("HTTP/1.1 200 ")) << size;
  }
  std::string many;
  for (int i = 0; i < 2000; ++i) many += "a: b\r\n";
  EXPECT_THAT(get("/p", many), StartsWith("HTTP/1.1 431 "));
}

TEST_F(HttpServerTest, RefusesEarlyWithoutReadingALargeBody) {
  Start();
  EXPECT_THAT(
      Exchange(
          "POST /denied HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody"),
      StartsWith("HTTP/1.1 401 "));
  RawClient client(server_->port());
  client.Send("POST /denied HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), HasSubstr("denied"));
  EXPECT_EQ(handler_.handled, 0);
}

TEST_F(HttpServerTest, DrainClosesIdleConnectionsAndFinishesBusyOnes) {
  Start();
  RawClient idle(server_->port()), busy(server_->port());
  idle.Send("GET /p HTTP/1.1\r\nHost: x\r\n\r\n");
  idle.ReadUntil("GET /p 0");
  busy.Send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return handler_.handled == 2; }));
  server_->BeginDrain();
  EXPECT_EQ(idle.ReadAll(), "");
  HttpResponse response;
  response.body = "done";
  handler_.held->Send(std::move(response));
  EXPECT_THAT(busy.ReadAll(), HasSubstr("done"));
}

// Later requests are answered, on existing connections and on new ones.
TEST_F(HttpServerTest, LeavingAnswersAndClosesAfterEachAnswer) {
  Start();
  RawClient idle(server_->port());
  idle.Send("GET /p HTTP/1.1\r\nHost: x\r\n\r\n");
  idle.ReadUntil("GET /p 0");
  server_->BeginLeaving();
  idle.Send("GET /q HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(idle.ReadAll(), AllOf(HasSubstr("connection: close"), HasSubstr("GET /q 0")));
  RawClient later(server_->port());
  later.Send("GET /r HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(later.ReadAll(), AllOf(HasSubstr("connection: close"), HasSubstr("GET /r 0")));
}

// Connections in the system's queue are accepted; later ones are refused, so that a proxy tries
// another server.
TEST_F(HttpServerTest, RefusesNewConnectionsAfterTheLast) {
  Start();
  RawClient open(server_->port());
  server_->BeginLeaving();
  server_->StopAccepting();
  const auto connects = [&] {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool connected =
        connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    close(fd);
    return connected;
  };
  EXPECT_TRUE(Eventually([&] { return !connects(); }));
  open.Send("GET /p HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(open.ReadAll(), HasSubstr("GET /p 0")) << "it was there before";
}

TEST_F(HttpServerTest, NamesATakenPort) {
  Start();
  ServerConfig config;
  config.host = "127.0.0.1";
  config.port = server_->port();
  const auto second = HttpServer::Listen(config, memory_, &handler_, nullptr);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kAddressInUse);
  EXPECT_THAT(second.error().message, HasSubstr(std::to_string(config.port)));
}

TEST_F(HttpServerTest, WarnsOfAnOpenPortWithoutAKey) {
  const auto log_of = [&](const std::string& host, std::vector<std::string> keys) {
    ServerConfig config;
    config.host = host;
    config.port = 0;
    config.api_keys = std::move(keys);
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(HttpServer::Listen(config, memory_, &handler_, nullptr)) << host;
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(log_of("0.0.0.0", {}), HasSubstr(" WARN http anyone who can reach 0.0.0.0 port "));
  EXPECT_EQ(log_of("0.0.0.0", {"sk-bead-0001"}), "");
  EXPECT_EQ(log_of("127.0.0.1", {}), "");
  EXPECT_EQ(log_of("localhost", {}), "");
}

TEST_F(HttpServerTest, SurvivesRandomBytes) {
  Start();
  uint32_t state = 1;
  const std::string valid =
      "POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
  for (int i = 0; i < 300; ++i) {
    std::string bytes = valid;
    for (int j = 0; j < 3; ++j) {
      state = state * 1664525 + 1013904223;
      bytes[state % bytes.size()] = static_cast<char>(state >> 24);
    }
    RawClient client(server_->port());
    client.Send(bytes);
    client.HalfClose();
    client.ReadAll();
  }
  EXPECT_THAT(Exchange(valid), HasSubstr("POST /p 5"));
}

}  // namespace
}  // namespace sluice
