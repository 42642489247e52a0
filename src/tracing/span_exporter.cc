#include "tracing/span_exporter.h"

#include <curl/curl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/check.h"
#include "base/firewall.h"
#include "base/log.h"

namespace sluice {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr auto kBatchTime = std::chrono::seconds(1);
constexpr auto kFirstPause = std::chrono::seconds(1), kLongestPause = std::chrono::seconds(30);
constexpr auto kTimeToEnd = std::chrono::seconds(2);
constexpr auto kWarningsApart = std::chrono::minutes(1);
constexpr long kConnectMilliseconds = 5000, kSendMilliseconds = 10000;
constexpr std::string_view kTracesPath = "/v1/traces";

tl::unexpected<Error> RefusedTracing(std::string_view name, const std::string& why) {
  return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", name, why),
              "otlp-traces-endpoint");
}

// Returns the URL to which spans are sent.
Result<std::string> TracesUrl(const std::string& endpoint) {
  const auto refused = [&](std::string_view found) {
    return RefusedTracing("--otlp-traces-endpoint",
                          fmt::format("expected http://HOST:PORT or https://HOST:PORT of a "
                                      "collector that accepts OTLP over HTTP, found {}",
                                      found));
  };
  const std::unique_ptr<CURLU, void (*)(CURLU*)> url(curl_url(), curl_url_cleanup);
  CHECK(url != nullptr, "libcurl: no memory");
  const auto part = [&](CURLUPart which) {
    char* text = nullptr;
    if (curl_url_get(url.get(), which, &text, 0) != CURLUE_OK) return std::string();
    std::string found(text);
    curl_free(text);
    return found;
  };
  if (endpoint.starts_with("grpc://") || endpoint.starts_with("grpcs://"))
    return refused(fmt::format("'{}': OTLP over gRPC is not supported", endpoint));
  if (curl_url_set(url.get(), CURLUPART_URL, endpoint.c_str(), CURLU_NON_SUPPORT_SCHEME) !=
          CURLUE_OK ||
      (part(CURLUPART_SCHEME) != "http" && part(CURLUPART_SCHEME) != "https") ||
      part(CURLUPART_HOST).empty())
    return refused(fmt::format("'{}'", endpoint));
  if (!part(CURLUPART_USER).empty() || !part(CURLUPART_PASSWORD).empty()) {
    return RefusedTracing("--otlp-traces-endpoint",
                          "expected an address without a user: put credentials for the collector "
                          "into OTEL_EXPORTER_OTLP_HEADERS");
  }
  if (part(CURLUPART_PATH) == "/") {
    CHECK(curl_url_set(url.get(), CURLUPART_PATH, kTracesPath.data(), 0) == CURLUE_OK, "libcurl");
  }
  return part(CURLUPART_URL);
}

std::string WithoutPercents(std::string_view text) {
  if (text.empty()) return "";
  int size = 0;
  char* decoded = curl_easy_unescape(nullptr, text.data(), static_cast<int>(text.size()), &size);
  CHECK(decoded != nullptr, "libcurl: no memory");
  std::string result(decoded, static_cast<size_t>(size));
  curl_free(decoded);
  return result;
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

// Parses "key=value,key=value" with percent-encoded values.
Result<Pairs> ReadPairs(std::string_view variable, std::string_view text) {
  Pairs pairs;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view pair = AsciiTrim(text.substr(0, end), " \t");
    text.remove_prefix(std::min(end + 1, text.size()));
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    const std::string_view name = AsciiTrim(pair.substr(0, equals), " \t");
    if (equals == std::string_view::npos || name.empty())
      return RefusedTracing(variable, "expected key=value,key=value, found a part without '='");
    pairs.emplace_back(name, WithoutPercents(AsciiTrim(pair.substr(equals + 1), " \t")));
  }
  return pairs;
}

// Finds a variable and returns its name and value. The variable for traces takes precedence over
// the variable for all signals.
std::pair<std::string, std::string> Find(const Variables& variables, std::string_view end) {
  for (const char* begin : {"OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"}) {
    const std::string name = fmt::format("{}{}", begin, end);
    if (const char* value = variables(name.c_str()); value != nullptr && *value != '\0')
      return {name, value};
  }
  return {};
}

Result<std::vector<std::string>> ReadHeaders(const Variables& variables) {
  const auto [name, value] = Find(variables, "HEADERS");
  std::vector<std::string> headers;
  ASSIGN_OR_RETURN(const Pairs pairs, ReadPairs(name, value));
  for (const auto& [key, text] : pairs) {
    const auto is_token = [](char c) { return c > ' ' && c <= '~' && c != ':'; };
    const auto is_text = [](char c) { return c == '\t' || (c >= ' ' && c != '\x7f'); };
    if (!std::ranges::all_of(key, is_token) || !std::ranges::all_of(text, is_text))
      return RefusedTracing(name, "expected names and values of HTTP headers");
    // curl omits a header that ends with a colon; with a semicolon it sends an empty header.
    headers.push_back(text.empty() ? key + ";" : fmt::format("{}: {}", key, text));
  }
  return headers;
}

Result<std::vector<SpanAttribute>> ReadResource(const Variables& variables) {
  const auto value_of = [&](const char* name) {
    const char* value = variables(name);
    return std::string(value == nullptr ? "" : value);
  };
  std::string service = value_of("OTEL_SERVICE_NAME");
  std::vector<SpanAttribute> resource;
  ASSIGN_OR_RETURN(const Pairs pairs,
                   ReadPairs("OTEL_RESOURCE_ATTRIBUTES", value_of("OTEL_RESOURCE_ATTRIBUTES")));
  for (const auto& [key, value] : pairs) {
    if (key != "service.name") {
      resource.push_back({key, value});
    } else if (service.empty()) {
      service = value;
    }
  }
  resource.push_back({"service.name", service.empty() ? "sluice" : service});
  resource.push_back({"process.pid", int64_t{getpid()}});
  return resource;
}

size_t DropBody(char*, size_t, size_t size, void*) {
  return size;
}

}  // namespace

Result<SpanExporterSettings> ReadSpanExporterSettings(const std::string& endpoint,
                                                      const std::string& version,
                                                      const Variables& variables) {
  SpanExporterSettings settings;
  settings.version = version;
  ASSIGN_OR_RETURN(settings.url, TracesUrl(endpoint));
  if (const auto [name, protocol] = Find(variables, "PROTOCOL");
      !name.empty() && protocol != "http/protobuf") {
    return RefusedTracing(name,
                          fmt::format("expected http/protobuf, the only supported protocol for "
                                      "traces, found '{}'; a collector's usual port for it is 4318",
                                      protocol));
  }
  ASSIGN_OR_RETURN(settings.headers, ReadHeaders(variables));
  const auto [name, file] = Find(variables, "CERTIFICATE");
  if (!name.empty() && !std::ifstream(file).good())
    return RefusedTracing(name, fmt::format("cannot read {}", file));
  settings.certificates = file;
  ASSIGN_OR_RETURN(settings.resource, ReadResource(variables));
  return settings;
}

SpanExporter::SpanExporter(SpanExporterSettings settings)
    : settings_(std::move(settings)), thread_(StartThread("spans", [this] { Work(); })) {}

SpanExporter::~SpanExporter() {
  deadline_ = (SteadyClock::now() + kTimeToEnd).time_since_epoch().count();
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  thread_.join();
}

void SpanExporter::Export(TraceSpan span) {
  const MutexLock lock(mutex_);
  if (queue_.size() >= kMaxQueued) {
    ++num_dropped_;
    return;
  }
  queue_.push_back(std::move(span));
  if (queue_.size() == kMaxBatch) wake_.NotifyOne();
}

bool SpanExporter::TimeIsUp() const {
  const SteadyClock::rep deadline = deadline_;
  return deadline != 0 && SteadyClock::now().time_since_epoch().count() > deadline;
}

void SpanExporter::Work() {
  // Writing to a connection that the collector has closed must not end the process.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);

  std::optional<SteadyClock::time_point> last_warning;
  auto pause = kFirstPause;
  std::vector<TraceSpan> batch;
  batch.reserve(kMaxBatch);
  MutexLock lock(mutex_);
  while (true) {
    if (batch.empty()) {
      const auto next = SteadyClock::now() + kBatchTime;
      while (!stopping_ && queue_.size() < kMaxBatch && wake_.WaitUntil(lock, next)) {
      }
      const auto count = static_cast<std::ptrdiff_t>(std::min(queue_.size(), kMaxBatch));
      batch.assign(std::make_move_iterator(queue_.begin()),
                   std::make_move_iterator(queue_.begin() + count));
      queue_.erase(queue_.begin(), queue_.begin() + count);
    }
    if (batch.empty()) {
      if (stopping_) return;
      continue;
    }
    lock.Unlock();
    std::string problem;
    Outcome outcome = Outcome::kAgain;
    RunGuarded("tracing", "to send spans", [&] { outcome = Send(batch, problem); });
    const bool over = outcome == Outcome::kAgain && deadline_ != 0;
    if (outcome == Outcome::kSent) {
      num_sent_ += batch.size();
      pause = kFirstPause;
    } else if (outcome == Outcome::kRefused || over) {
      num_dropped_ += batch.size();
    }
    if (outcome != Outcome::kSent &&
        (!last_warning || SteadyClock::now() > *last_warning + kWarningsApart)) {
      last_warning = SteadyClock::now();
      RunGuarded("tracing", "to warn", [&] {
        LOG_WARNING("tracing", "spans were not accepted by {}: {}; {} have been dropped so far",
                    settings_.url, problem, num_dropped_.load());
      });
    }
    if (outcome != Outcome::kAgain || over) batch.clear();
    lock.Lock();
    if (over) {
      num_dropped_ += queue_.size();
      return;
    }
    if (outcome != Outcome::kAgain) continue;
    const auto next = SteadyClock::now() + pause;
    while (!stopping_ && wake_.WaitUntil(lock, next)) {
    }
    pause = std::min(2 * pause, kLongestPause);
  }
}

SpanExporter::Outcome SpanExporter::Send(const std::vector<TraceSpan>& batch,
                                         std::string& problem) {
  const std::string body = EncodeSpans(settings_.resource, "sluice", settings_.version, batch);
  // One handle per batch, because collectors close connections that are idle for seconds.
  const std::unique_ptr<CURL, void (*)(CURL*)> easy(curl_easy_init(), curl_easy_cleanup);
  if (easy == nullptr) throw std::bad_alloc();
  const auto set = [&](CURLoption option, auto value) {
    curl_easy_setopt(easy.get(), option, value);
  };
  std::array<char, CURL_ERROR_SIZE> message = {};
  set(CURLOPT_ERRORBUFFER, message.data());
  set(CURLOPT_URL, settings_.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_USERAGENT, "sluice");
  set(CURLOPT_CONNECTTIMEOUT_MS, kConnectMilliseconds);
  set(CURLOPT_TIMEOUT_MS, kSendMilliseconds);
  if (!settings_.certificates.empty()) set(CURLOPT_CAINFO, settings_.certificates.c_str());
  set(CURLOPT_POST, 1L);
  set(CURLOPT_POSTFIELDS, body.data());
  set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  set(CURLOPT_WRITEFUNCTION, DropBody);
  set(CURLOPT_NOPROGRESS, 0L);
  const curl_xferinfo_callback is_over = [](void* self, curl_off_t, curl_off_t, curl_off_t,
                                            curl_off_t) {
    return static_cast<const SpanExporter*>(self)->TimeIsUp() ? 1 : 0;
  };
  set(CURLOPT_XFERINFOFUNCTION, is_over);
  set(CURLOPT_XFERINFODATA, this);
  curl_slist* list = curl_slist_append(nullptr, "Content-Type: application/x-protobuf");
  list = curl_slist_append(list, "Expect:");
  for (const std::string& header : settings_.headers)
    list = curl_slist_append(list, header.c_str());
  const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(list, curl_slist_free_all);
  set(CURLOPT_HTTPHEADER, headers.get());
  const CURLcode code = curl_easy_perform(easy.get());
  if (code != CURLE_OK) {
    problem = message[0] != '\0' ? message.data() : curl_easy_strerror(code);
    return Outcome::kAgain;
  }
  long status = 0;
  curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &status);
  if (status >= 200 && status < 300) return Outcome::kSent;
  problem = fmt::format("it answered {}", status);
  return status == 429 || (status >= 502 && status <= 504) ? Outcome::kAgain : Outcome::kRefused;
}

}  // namespace sluice
