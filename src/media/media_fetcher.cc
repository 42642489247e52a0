#include "media/media_fetcher.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/ascii.h"
#include "base/check.h"
#include "base/firewall.h"
#include "base/mutex.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxShownUrl = 200;

tl::unexpected<Error> NotFetched(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

// A URL as parsed by libcurl, so that the check and the connection interpret it in the same way.
struct ReadUrl {
  std::string host;  // in lower case, without brackets
  bool has_credentials = false;
};

Result<ReadUrl> Read(const std::string& url) {
  const std::unique_ptr<CURLU, void (*)(CURLU*)> parsed(curl_url(), curl_url_cleanup);
  if (parsed == nullptr || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) {
    return NotFetched(fmt::format("not a URL: '{}'", url.substr(0, kMaxShownUrl)));
  }
  const auto part = [&](CURLUPart which) {
    char* value = nullptr;
    if (curl_url_get(parsed.get(), which, &value, 0) != CURLUE_OK) return std::string();
    std::string copy(value);
    curl_free(value);
    return copy;
  };
  ReadUrl read;
  const std::string scheme = AsciiLower(part(CURLUPART_SCHEME));
  if (scheme != "http" && scheme != "https")
    return NotFetched(fmt::format("expected an http or https URL, found '{}'", scheme));
  read.host = AsciiLower(part(CURLUPART_HOST));
  if (read.host.starts_with('[') && read.host.ends_with(']'))
    read.host = read.host.substr(1, read.host.size() - 2);
  if (read.host.ends_with('.')) read.host.pop_back();
  read.has_credentials = !part(CURLUPART_USER).empty() || !part(CURLUPART_PASSWORD).empty();
  return read;
}

// One request to one host, and the state of libcurl's callbacks.
struct Exchange {
  const MediaFetchConfig* config = nullptr;
  const ReserveBytes* reserve = nullptr;
  const std::atomic<bool>* stopping = nullptr;
  bool private_allowed = false;
  bool is_forbidden = false;  // whether connecting to the address is forbidden
  bool is_large = false;
  bool is_refused = false;  // whether `reserve` returned false
  std::string body = "";
  // The exception that a callback threw. It must not propagate through libcurl, which would leak
  // memory.
  std::exception_ptr thrown = nullptr;
};

std::string TextOfAddress(const sockaddr& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text, sizeof text);
  } else if (address.sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, text,
              sizeof text);
  }
  return text;
}

// Checks the address when connecting, because an earlier lookup of the name could have returned
// another address.
curl_socket_t OpenSocket(void* user, curlsocktype, curl_sockaddr* address) {
  auto* exchange = static_cast<Exchange*>(user);
  try {
    exchange->is_forbidden =
        !exchange->private_allowed && !IsPublicAddress(TextOfAddress(address->addr));
  } catch (...) {
    exchange->thrown = std::current_exception();
  }
  if (exchange->is_forbidden || exchange->thrown != nullptr) return CURL_SOCKET_BAD;
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

size_t OnMediaBody(char* data, size_t, size_t size, void* user) {
  auto* exchange = static_cast<Exchange*>(user);
  const uint64_t total = exchange->body.size() + size;
  exchange->is_large = total > exchange->config->max_bytes;
  if (exchange->is_large) return 0;
  try {
    // A string that grows briefly needs memory for its old and its new bytes.
    exchange->is_refused = *exchange->reserve && !(*exchange->reserve)(3 * total);
    if (exchange->is_refused) return 0;
    exchange->body.append(data, size);
    return size;
  } catch (...) {
    exchange->thrown = std::current_exception();
    return 0;
  }
}

int OnMediaProgress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Exchange*>(user)->stopping->load() ? 1 : 0;
}

void SetUp(CURL* easy, const std::string& url, Exchange& exchange, long milliseconds) {
  const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(easy, option, value); };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_PROXY, "");
  set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  set(CURLOPT_USERAGENT, "sluice");
  set(CURLOPT_TIMEOUT_MS, milliseconds);
  set(CURLOPT_CONNECTTIMEOUT_MS, milliseconds);
  set(CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(exchange.config->max_bytes));
  set(CURLOPT_OPENSOCKETFUNCTION, &OpenSocket);
  set(CURLOPT_OPENSOCKETDATA, &exchange);
  set(CURLOPT_WRITEFUNCTION, &OnMediaBody);
  set(CURLOPT_WRITEDATA, &exchange);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &OnMediaProgress);
  set(CURLOPT_XFERINFODATA, &exchange);
  // Debian's path, because libcurl may have been built for another system.
  std::error_code ignored;
  constexpr const char* kAuthorities = "/etc/ssl/certs/ca-certificates.crt";
  if (std::filesystem::exists(kAuthorities, ignored)) set(CURLOPT_CAINFO, kAuthorities);
}

}  // namespace

class MediaFetcher::Impl {
 public:
  explicit Impl(MediaFetchConfig config) : config_(std::move(config)) {
    static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
    CHECK(ready == CURLE_OK, "libcurl: {}", curl_easy_strerror(ready));
  }
  ~Impl() { Stop(); }

  Result<std::string> Fetch(std::string url, const ReserveBytes& reserve) const {
    const Clock::time_point deadline =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(
                           std::chrono::duration<double>(config_.timeout_seconds));
    for (int redirects = 0; redirects <= config_.max_redirects; ++redirects) {
      std::string next;
      ASSIGN_OR_RETURN(std::string body, FetchOnce(url, reserve, deadline, next));
      if (next.empty()) return body;
      url = std::move(next);
    }
    if (config_.max_redirects == 0)
      return NotFetched("it redirects, which --no-allow-media-redirects forbids");
    return NotFetched(fmt::format("more than {} redirects", config_.max_redirects));
  }

  void Submit(std::vector<std::string> urls, ReserveBytes reserve,
              std::function<void(FetchedMedia)> done) {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    if (idle_ == 0 && static_cast<int>(threads_.size()) < config_.threads) {
      const bool is_started = RunGuarded("media", "to start a thread", [&]() REQUIRES(mutex_) {
        threads_.reserve(static_cast<size_t>(config_.threads));
        threads_.push_back(StartThread("media-fetch", [this] { Work(); }));
      });
      if (!is_started && threads_.empty())
        throw std::runtime_error("the system refuses a thread to fetch images");
    }
    jobs_.push_back({std::move(urls), std::move(reserve), std::move(done)});
    wake_.NotifyOne();
  }

  void Stop() {
    std::deque<Job> dropped;
    std::vector<std::thread> threads;
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      dropped.swap(jobs_);
      threads.swap(threads_);
    }
    wake_.NotifyAll();
    for (std::thread& thread : threads) thread.join();
  }

 private:
  struct Job {
    std::vector<std::string> urls;
    ReserveBytes reserve;
    std::function<void(FetchedMedia)> done;
  };

  bool Allows(const std::string& host, bool& by_name) const {
    by_name = std::ranges::find(config_.hosts, host) != config_.hosts.end();
    return by_name || std::ranges::find(config_.hosts, "*") != config_.hosts.end();
  }

  // Makes one request. `next`: receives the redirect's target, or "".
  Result<std::string> FetchOnce(const std::string& url, const ReserveBytes& reserve,
                                Clock::time_point deadline, std::string& next) const {
    ASSIGN_OR_RETURN(const ReadUrl read, Read(url));
    if (read.has_credentials) return NotFetched("a URL with a name or password is not fetched");
    Exchange exchange{.config = &config_, .reserve = &reserve, .stopping = &stopping_};
    if (!Allows(read.host, exchange.private_allowed)) {
      return NotFetched(
          config_.hosts.empty()
              ? std::string("images by URL are not fetched: send them as data: URLs, or start the "
                            "server with "
                            "--allowed-media-domains")
              : fmt::format(
                    "The URL must be from one of the allowed domains: {}. Input URL domain: {}",
                    fmt::join(config_.hosts, ", "), read.host.substr(0, kMaxShownUrl)));
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return NotFetched(TooSlow());
    const std::unique_ptr<CURL, void (*)(CURL*)> easy(curl_easy_init(), curl_easy_cleanup);
    if (easy == nullptr) return Fail(ErrorCode::kResourceExhausted, "no memory to fetch an image");
    SetUp(easy.get(), url, exchange, static_cast<long>(left));
    const CURLcode code = curl_easy_perform(easy.get());
    if (exchange.thrown != nullptr) std::rethrow_exception(exchange.thrown);
    if (code != CURLE_OK) return Failure(exchange, code, read.host);
    long status = 0;
    curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &status);
    char* redirect = nullptr;
    curl_easy_getinfo(easy.get(), CURLINFO_REDIRECT_URL, &redirect);
    if (status >= 300 && status < 400 && redirect != nullptr) {
      next = redirect;
      return std::string();
    }
    if (status != 200)
      return NotFetched(fmt::format("{} answered with status {}", read.host, status));
    return std::move(exchange.body);
  }

  std::string TooSlow() const {
    return fmt::format("it took longer than {} s (--media-fetch-timeout)", config_.timeout_seconds);
  }

  tl::unexpected<Error> Failure(const Exchange& exchange, CURLcode code,
                                const std::string& host) const {
    if (exchange.is_forbidden) {
      return NotFetched(fmt::format(
          "{} has an address that is not public; --allowed-media-domains with its name allows it",
          host));
    }
    if (exchange.is_large || code == CURLE_FILESIZE_EXCEEDED) {
      return NotFetched(
          fmt::format("it has more than {} bytes (--max-request-bytes)", config_.max_bytes));
    }
    if (exchange.is_refused)
      return Fail(ErrorCode::kResourceExhausted, "no memory for its bytes now; try again later");
    if (code == CURLE_OPERATION_TIMEDOUT) return NotFetched(TooSlow());
    if (stopping_) return Fail(ErrorCode::kUnavailable, "the server is shutting down");
    return NotFetched(fmt::format("{}: {}", host, curl_easy_strerror(code)));
  }

  void Work() {
    for (;;) {
      Job job;
      {
        MutexLock lock(mutex_);
        ++idle_;
        while (jobs_.empty() && !stopping_) wake_.Wait(lock);
        --idle_;
        if (stopping_) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      RunGuarded("media", "fetching an image", [&] { Run(job); });
    }
  }

  void Run(Job& job) const {
    FetchedMedia fetched;
    uint64_t held = 0;
    for (const std::string& url : job.urls) {
      if (fetched.contains(url)) continue;
      const ReserveBytes reserve = [&](uint64_t bytes) {
        return !job.reserve || job.reserve(held + bytes);
      };
      Result<std::string> bytes = CatchToResult([&] { return Fetch(url, reserve); });
      if (bytes) held += bytes->capacity();
      fetched.emplace(url, std::move(bytes));
    }
    job.done(std::move(fetched));
  }

  const MediaFetchConfig config_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<Job> jobs_ GUARDED_BY(mutex_);
  std::atomic<bool> stopping_{false};  // changed under the mutex
  int idle_ GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_ GUARDED_BY(mutex_);
};

MediaFetcher::MediaFetcher(MediaFetchConfig config)
    : impl_(std::make_unique<Impl>(std::move(config))) {}

MediaFetcher::~MediaFetcher() = default;

Result<std::string> MediaFetcher::Fetch(const std::string& url, const ReserveBytes& reserve) const {
  return impl_->Fetch(url, reserve);
}

void MediaFetcher::Submit(std::vector<std::string> urls, ReserveBytes reserve,
                          std::function<void(FetchedMedia)> done) {
  impl_->Submit(std::move(urls), std::move(reserve), std::move(done));
}

void MediaFetcher::Stop() {
  impl_->Stop();
}

}  // namespace sluice
