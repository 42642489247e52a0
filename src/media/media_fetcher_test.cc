#include "media/media_fetcher.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <future>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

// A host on the loopback interface: answers each connection with answer(request).
class LoopbackHost {
 public:
  explicit LoopbackHost(std::function<std::string(const std::string&)> answer)
      : answer_(std::move(answer)) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    socklen_t length = sizeof address;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~LoopbackHost() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  std::string Url(std::string_view path, std::string_view host = "127.0.0.1") const {
    return fmt::format("http://{}:{}{}", host, port_, path);
  }
  std::string requests() const { return requests_; }  // call after the requests are answered
  int num_requests() const { return num_requests_; }

 private:
  void Serve() {
    for (;;) {
      const int connection = accept(listener_, nullptr, nullptr);
      if (connection < 0) return;
      char buffer[4096];
      const ssize_t size = recv(connection, buffer, sizeof buffer, 0);
      const std::string request(buffer, size > 0 ? static_cast<size_t>(size) : 0);
      requests_ += request;
      ++num_requests_;
      const std::string answer = answer_(request);
      send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
      close(connection);
    }
  }

  std::function<std::string(const std::string&)> answer_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::string requests_;
  std::atomic<int> num_requests_{0};
  std::thread thread_;
};

std::string Http(std::string_view status, std::string_view headers, std::string_view body) {
  return fmt::format("HTTP/1.1 {}\r\nContent-Length: {}\r\nConnection: close\r\n{}\r\n{}", status,
                     body.size(), headers, body);
}

MediaFetchConfig ConfigOf(std::vector<std::string> hosts) {
  MediaFetchConfig config;
  config.hosts = std::move(hosts);
  return config;
}

std::string FetchProblem(const MediaFetchConfig& config, const std::string& url) {
  const Result<std::string> bytes = MediaFetcher(config).Fetch(url, nullptr);
  return bytes ? "none" : bytes.error().message;
}

TEST(MediaFetcherTest, FetchesFromHostsThatAreNamed) {
  const LoopbackHost host([](const std::string&) { return Http("200 OK", "", "bytes"); });
  EXPECT_EQ(MediaFetcher(ConfigOf({"127.0.0.1"})).Fetch(host.Url("/a"), nullptr).value(), "bytes");
  EXPECT_THAT(host.requests(), HasSubstr("GET /a HTTP/1.1"));
  for (const char* secret : {"Cookie", "Authorization", "Referer"})
    EXPECT_THAT(host.requests(), Not(HasSubstr(secret)));
}

TEST(MediaFetcherTest, AsksNoOtherHosts) {
  const LoopbackHost host([](const std::string&) { return Http("200 OK", "", "bytes"); });
  EXPECT_THAT(FetchProblem(ConfigOf({}), host.Url("/")), HasSubstr("--allowed-media-domains"));
  EXPECT_THAT(FetchProblem(ConfigOf({"example.org"}), host.Url("/")),
              HasSubstr("allowed domains: example.org. Input URL domain: 127.0.0.1"));
  // "*" does not include private addresses, however they are written.
  for (const char* name :
       {"127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]"})
    EXPECT_THAT(FetchProblem(ConfigOf({"*"}), host.Url("/", name)), HasSubstr("not public"))
        << name;
  EXPECT_THAT(FetchProblem(ConfigOf({"127.0.0.1"}), "http://a:b@127.0.0.1/"),
              HasSubstr("name or password"));
  EXPECT_THAT(FetchProblem(ConfigOf({"*"}), "file:///etc/passwd"),
              HasSubstr("expected an http or https URL"));
  EXPECT_EQ(host.num_requests(), 0);
}

TEST(MediaFetcherTest, ChecksRedirectsAgain) {
  const LoopbackHost host([](const std::string& request) {
    if (request.starts_with("GET /there")) return Http("200 OK", "", "bytes");
    if (request.starts_with("GET /away"))
      return Http("302 Found", "Location: http://localhost:1/\r\n", "");
    if (request.starts_with("GET /file"))
      return Http("302 Found", "Location: file:///etc/passwd\r\n", "");
    if (request.starts_with("GET /round")) return Http("302 Found", "Location: /round\r\n", "");
    return Http("301 Moved", "Location: /there\r\n", "");
  });
  const MediaFetchConfig config = ConfigOf({"127.0.0.1"});
  EXPECT_EQ(MediaFetcher(config).Fetch(host.Url("/here"), nullptr).value(), "bytes");
  EXPECT_THAT(FetchProblem(config, host.Url("/away")), HasSubstr("Input URL domain: localhost"));
  EXPECT_THAT(FetchProblem(config, host.Url("/file")), HasSubstr("expected an http or https URL"));
  EXPECT_EQ(FetchProblem(config, host.Url("/round")), "more than 5 redirects");
  MediaFetchConfig without = config;
  without.max_redirects = 0;
  EXPECT_THAT(FetchProblem(without, host.Url("/here")), HasSubstr("--no-allow-media-redirects"));
  EXPECT_EQ(MediaFetcher(without).Fetch(host.Url("/there"), nullptr).value(), "bytes");
}

TEST(MediaFetcherTest, BoundsBytesAndTime) {
  const LoopbackHost host([](const std::string& request) {
    if (request.starts_with("GET /slow"))
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
    if (request.starts_with("GET /none")) return Http("404 Not Found", "", "no");
    const std::string body(5000, 'x');
    return request.starts_with("GET /length")
               ? Http("200 OK", "", body)
               : "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body;
  });
  MediaFetchConfig config = ConfigOf({"127.0.0.1"});
  config.max_bytes = 4000;
  EXPECT_THAT(FetchProblem(config, host.Url("/length")), HasSubstr("more than 4000 bytes"));
  EXPECT_THAT(FetchProblem(config, host.Url("/endless")), HasSubstr("more than 4000 bytes"));
  EXPECT_THAT(FetchProblem(config, host.Url("/none")), HasSubstr("answered with status 404"));
  config.max_bytes = 100'000;
  const auto refuse = [](uint64_t) { return false; };
  EXPECT_EQ(MediaFetcher(config).Fetch(host.Url("/length"), refuse).error().code,
            ErrorCode::kResourceExhausted);
  config.timeout_seconds = 0.2;
  EXPECT_THAT(FetchProblem(config, host.Url("/slow")), HasSubstr("--media-fetch-timeout"));
}

TEST(MediaFetcherTest, WorksOffTheCallersThread) {
  const LoopbackHost host(
      [](const std::string& request) { return Http("200 OK", "", request.substr(4, 2)); });
  MediaFetcher fetcher(ConfigOf({"127.0.0.1"}));
  std::promise<FetchedMedia> promise;
  fetcher.Submit({host.Url("/a"), host.Url("/b"), host.Url("/a")}, nullptr,
                 [&](FetchedMedia fetched) { promise.set_value(std::move(fetched)); });
  FetchedMedia fetched = promise.get_future().get();
  EXPECT_EQ(fetched.size(), 2);
  EXPECT_EQ(fetched.at(host.Url("/b")).value(), "/b");
  EXPECT_EQ(host.num_requests(), 2);
  fetcher.Stop();
  fetcher.Submit({host.Url("/c")}, nullptr, [](FetchedMedia) { FAIL(); });
}

}  // namespace
}  // namespace sluice
