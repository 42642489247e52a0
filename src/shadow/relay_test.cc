#include "shadow/relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "base/json.h"
#include "base/mutex.h"
#include "client/client_testing.h"
#include "server/http/raw_client_testing.h"

namespace sluice::shadow {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

// A test server that answers every request without a body, or with the body "{}", with the same
// text.
class Upstream {
 public:
  explicit Upstream(std::string answer) : answer_(std::move(answer)) {
    listener_ = ListenAt(&url_, 16);
    thread_ = std::thread([this] { Accept(); });
  }
  ~Upstream() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    for (const int client : clients_) shutdown(client, SHUT_RDWR);
    for (std::thread& thread : threads_) thread.join();
    for (const int client : clients_) close(client);
    close(listener_);
  }
  const Url& url() const { return url_; }
  // Returns the heads of the received requests, in lower case.
  std::vector<std::string> heads() const {
    const MutexLock lock(mutex_);
    return heads_;
  }

 private:
  void Accept() {
    while (true) {
      const int client = accept(listener_, nullptr, nullptr);
      if (client < 0) return;
      clients_.push_back(client);
      threads_.emplace_back([this, client] { Talk(client); });
    }
  }
  void Talk(int client) {
    std::string seen;
    while (true) {
      const size_t end = seen.find("\r\n\r\n");
      const bool has_body = seen.find("content-length: 2\r\n") < end;
      if (end == std::string::npos || seen.size() < end + (has_body ? 6 : 4)) {
        char bytes[4096];
        const ssize_t got = recv(client, bytes, sizeof(bytes), 0);
        if (got <= 0) return;
        seen.append(bytes, static_cast<size_t>(got));
        continue;
      }
      {
        const MutexLock lock(mutex_);
        heads_.push_back(AsciiLower(seen.substr(0, end + 2)));
      }
      seen.clear();
      send(client, answer_.data(), answer_.size(), MSG_NOSIGNAL);
    }
  }

  const std::string answer_;
  int listener_ = -1;
  Url url_;
  mutable Mutex mutex_;
  std::vector<std::string> heads_ GUARDED_BY(mutex_);
  std::thread thread_;
  std::vector<int> clients_;
  std::vector<std::thread> threads_;
};

class RelayTest : public ::testing::Test {
 protected:
  void Start(const Upstream& upstream, RelayOptions options = {}) {
    options.server.host = "127.0.0.1";
    options.server.port = 0;
    options.upstream = upstream.url();
    auto relay = Relay::Start(std::move(options), &queue_, &findings_);
    ASSERT_TRUE(relay) << relay.error().message;
    relay_ = *std::move(relay);
  }
  // Sends a request that asks to close the connection. Returns the whole answer.
  std::string Ask(const std::string& request) {
    RawClient client(relay_->port());
    client.Send(request);
    return client.ReadAll();
  }

  ExchangeQueue queue_{10, 1 << 20};
  Findings findings_{{}, /*is_private=*/false};
  std::unique_ptr<Relay> relay_;
};

TEST_F(RelayTest, ForwardsPathsAloneAndNoFieldsOfConnections) {
  const Upstream upstream(
      "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Inner\r\nX-Inner: 1\r\nX-Outer: 2\r\n"
      "Content-Length: 2\r\n\r\n{}");
  Start(upstream);
  const std::string answer =
      Ask("GET http://other.example/v1/models?x=1 HTTP/1.1\r\nHost: other.example\r\n"
          "Connection: X-Hop ,close\r\nX-Hop: 1\r\nProxy-Authorization: Basic c2VjcmV0\r\n"
          "X-End: 2\r\n\r\n");
  EXPECT_THAT(AsciiLower(answer), AllOf(StartsWith("http/1.1 200"), HasSubstr("x-outer: 2\r\n"),
                                        Not(HasSubstr("x-inner"))));
  ASSERT_THAT(upstream.heads(), SizeIs(1));
  EXPECT_THAT(upstream.heads()[0],
              AllOf(StartsWith("get /v1/models?x=1 http/1.1\r\n"), HasSubstr("x-end: 2\r\n"),
                    Not(HasSubstr("x-hop")), Not(HasSubstr("proxy-authorization"))));
  Ask("GET http://other.example?x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  Ask("OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  ASSERT_THAT(upstream.heads(), SizeIs(3));
  EXPECT_THAT(upstream.heads()[1], StartsWith("get /?x http/1.1\r\n"));
  EXPECT_THAT(upstream.heads()[2], StartsWith("options * http/1.1\r\n"));
}

TEST_F(RelayTest, RefusesOtherTargets) {
  const Upstream upstream("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
  Start(upstream);
  const std::string rest = " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
  EXPECT_THAT(Ask("CONNECT other.example:443" + rest), StartsWith("HTTP/1.1 405"));
  for (const char* target : {"@other.example/", ".other.example/", "*", "ftp://other.example/"})
    EXPECT_THAT(Ask(std::string("GET ") + target + rest), StartsWith("HTTP/1.1 400")) << target;
  EXPECT_THAT(upstream.heads(), IsEmpty());
}

// Streamed and complete answers share one limit, and release their memory at the end.
TEST_F(RelayTest, CopiesOfAllAnswersAreLimitedTogether) {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
  const std::string chunk = "200\r\n" + std::string(0x200, 'a') + "\r\n";
  const Upstream stream(head + "Transfer-Encoding: chunked\r\n\r\n" + chunk + chunk + "0\r\n\r\n");
  const Upstream whole("HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n" + std::string(1024, 'a'));
  const std::string request =
      "POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n"
      "\r\n{}";
  int64_t judged = 0, not_judged = 0;
  for (const Upstream* upstream : {&stream, &whole}) {
    // The request and its answer are 1026 bytes.
    for (const uint64_t limit : {1, 1025, 1026}) {
      RelayOptions options;
      options.max_copied_together = limit;
      Start(*upstream, std::move(options));
      for (int i = 0; i < 2; ++i)
        EXPECT_THAT(Ask(request),
                    AllOf(StartsWith("HTTP/1.1 200"), HasSubstr(std::string(500, 'a'))));
      (limit == 1026 ? judged : not_judged) += 2;
    }
  }
  const json::Value report = findings_.Json();
  EXPECT_EQ(report.Find("not_judged")
                ->Find("more answers under way than --queue-bytes copies")
                ->as_integer(),
            not_judged);
  EXPECT_EQ(static_cast<int64_t>(queue_.Close()), judged);
}

}  // namespace
}  // namespace sluice::shadow
