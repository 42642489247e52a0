#include "shadow/relay.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/firewall.h"
#include "base/json.h"
#include "base/log.h"
#include "base/owned_fd.h"
#include "client/stream_client.h"
#include "server/http/http_server.h"

namespace sluice::shadow {
namespace {

// An answer that is not streamed and has at most this size is sent with its length.
constexpr size_t kMaxWholeBytes = size_t{4} << 20;
constexpr std::string_view kTooManyCopies = "more answers under way than --queue-bytes copies";

// Whether a header belongs to one connection only, or is written by the relay or its libraries.
bool IsOfConnection(std::string_view name) {
  constexpr std::string_view kNames[] = {"connection", "keep-alive", "proxy-connection",
                                         "proxy-authenticate", "proxy-authorization", "te",
                                         "trailer", "transfer-encoding", "upgrade",
                                         "content-length", "host", "expect", "date", "server",
                                         // removed, because a compressed copy of the answer could
                                         // not be read
                                         "accept-encoding"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

// Returns the field names that a Connection field with this value lists; these fields belong to one
// connection.
void AddNamed(std::string_view value, std::vector<std::string>& names) {
  while (!value.empty()) {
    const size_t comma = std::min(value.find(','), value.size());
    names.push_back(AsciiLower(AsciiTrim(value.substr(0, comma), " \t\r")));
    value.remove_prefix(std::min(comma + 1, value.size()));
  }
}

// Returns the headers that the relay forwards.
std::vector<HttpHeader> Passing(std::vector<HttpHeader> headers) {
  std::vector<std::string> named;
  for (const auto& [name, value] : headers) {
    if (name == "connection") AddNamed(value, named);
  }
  std::erase_if(headers, [&](const HttpHeader& header) {
    return IsOfConnection(header.name) || std::ranges::find(named, header.name) != named.end();
  });
  return headers;
}

// Returns the target without scheme and host, which clients of a proxy add; "" if the target must
// not be forwarded.
std::string OriginTarget(std::string_view method, std::string_view target) {
  target = target.substr(0, target.find('#'));
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (AsciiLower(target.substr(0, scheme.size())) != scheme) continue;
    target.remove_prefix(scheme.size());
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
    return (target.starts_with('/') ? "" : "/") + std::string(target);
  }
  const bool is_server = target == "*" && method == "OPTIONS";
  return target.starts_with('/') || is_server ? std::string(target) : "";
}

// Returns the headers of the upstream's answer, and its content type.
HttpResponse HeadOf(int status, std::string_view head) {
  HttpResponse response{.status = status, .content_type = "", .body = "", .headers = {}};
  size_t line = head.find("\r\n");
  while (line != std::string_view::npos) {
    head.remove_prefix(line + 2);
    line = head.find("\r\n");
    const std::string_view text = head.substr(0, line);
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string name = AsciiLower(text.substr(0, colon));
    const std::string value(AsciiTrim(text.substr(colon + 1), " \t\r"));
    if (name == "content-type") {
      response.content_type = value;
    } else {
      response.headers.push_back({name, value});
    }
  }
  response.headers = Passing(std::move(response.headers));
  return response;
}

bool HasLength(std::string_view head) {
  return AsciiLower(head).find("\r\ncontent-length:") != std::string::npos;
}

HttpResponse ErrorAnswer(int status, std::string_view type, const std::string& message) {
  json::Value error{json::Value::Object{}};
  error.Set("message", message);
  error.Set("type", std::string(type));
  error.Set("param", nullptr);
  error.Set("code", status);
  json::Value body{json::Value::Object{}};
  body.Set("error", std::move(error));
  HttpResponse response;
  response.status = status;
  response.body = json::Write(body);
  return response;
}

HttpResponse BadGateway(const std::string& problem) {
  return ErrorAnswer(502, "BadGatewayError",
                     "the upstream of this server does not answer: " + problem);
}

// Returns the body with return_token_ids added, if it is a JSON object.
std::string WithTokenIds(std::string body) {
  auto value = json::Parse(body);
  if (!value || !value->is_object()) return body;
  value->Set("return_token_ids", true);
  return json::Write(*value);
}

class RelayImpl;

// One request in progress. Used only by the relay's thread, except for the writer.
class Passage final : public StreamHandler {
 public:
  Passage(RelayImpl& relay, HttpRequest request, std::shared_ptr<ResponseWriter> writer)
      : relay_(relay), request_(std::move(request)), writer_(std::move(writer)) {}
  ~Passage() override;
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;

  bool wants_bytes() const override { return true; }
  void OnEvent(double /*now*/, std::string_view /*data*/) override {}
  void OnHead(int status, std::string_view head) override;
  void OnBytes(std::string_view bytes) override;
  void OnEnd(double now, StreamEnd end) override;

  void Send(StreamClient& client);
  ResponseWriter& writer() { return *writer_; }
  uint64_t number = 0;

 private:
  // Whether request and answer are copied for comparison.
  bool is_copied() const { return is_compared_ && why_not_copied_.empty(); }
  // Reserves memory for a copy within the limit of all copies. Returns false if too little is left.
  bool TakeMemory(uint64_t bytes);
  void StopCopying(std::string_view why);
  void Keep();

  RelayImpl& relay_;
  HttpRequest request_;
  const std::shared_ptr<ResponseWriter> writer_;
  HttpResponse response_;
  bool has_head_ = false;
  bool is_streamed_ = false;
  bool is_event_stream_ = false;
  bool is_compared_ = false;
  std::string_view why_not_copied_;  // why the exchange is not copied; "": it is copied
  std::string copy_;
  uint64_t answer_bytes_ = 0;
  uint64_t taken_bytes_ = 0;  // bytes reserved within the limit of all copies
};

// The I/O threads of the HTTP server pass tasks to the relay's thread; only this thread uses the
// client.
class RelayImpl final : public Relay, public HttpHandler {
 public:
  RelayImpl(RelayOptions options, ExchangeQueue* queue, Findings* findings)
      : options_(std::move(options)), queue_(queue), findings_(findings) {}
  ~RelayImpl() override {
    if (http_) http_->Stop();
    is_ending_ = true;
    if (wake_) Wake();
    if (thread_.joinable()) thread_.join();
  }

  Status Open() {
    ASSIGN_OR_RETURN(client_,
                     StreamClient::Create({.url = options_.upstream, .tls = options_.tls}));
    ASSIGN_OR_RETURN(wake_, OwnFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"));
    const auto memory = std::make_shared<RequestMemory>(options_.server.request_memory_bytes);
    ASSIGN_OR_RETURN(
        http_, HttpServer::Listen(options_.server, memory, this, [](const HttpExchangeRecord&) {}));
    thread_ = StartThread("relay", [this] { Run(); });
    http_->Start();
    return {};
  }

  uint16_t port() const override { return http_->port(); }
  void BeginDrain() override {
    http_->StopAccepting();
    http_->BeginDrain();
  }
  int64_t num_exchanges() const override { return http_->num_exchanges(); }

  std::optional<HttpResponse> CheckHead(const HttpRequest& head) override {
    if (head.method == "CONNECT") {
      HttpResponse refusal = ErrorAnswer(405, "MethodNotAllowedError",
                                         "CONNECT: requests are forwarded to only one server");
      refusal.headers.push_back({"allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"});
      return refusal;
    }
    if (!OriginTarget(head.method, head.target).empty()) return std::nullopt;
    return ErrorAnswer(400, "BadRequestError",
                       fmt::format("expected a path that begins with /, found '{}'", head.target));
  }
  void Handle(HttpRequest request, std::shared_ptr<ResponseWriter> writer) override {
    findings_->Forwarded();
    auto passage = std::make_shared<Passage>(*this, std::move(request), std::move(writer));
    const uint64_t number = ++num_requests_;
    passage->number = number;
    passage->writer().SetCallbacks([this, number] { Do([this, number] { Abandon(number); }); },
                                   [this, number] { Do([this, number] { GoOn(number); }); });
    Do([this, passage = std::move(passage)]() mutable {
      Passage& begun = *passage;
      passages_.emplace(begun.number, std::move(passage));
      if (!RunGuarded("relay", "a forwarded request", [&] { begun.Send(*client_); }))
        Abandon(begun.number);
    });
  }
  std::vector<HttpHeader> CommonHeaders(const HttpRequest& /*request*/, int /*status*/) override {
    return {};
  }

  const RelayOptions& options() const { return options_; }
  ExchangeQueue& queue() { return *queue_; }
  Findings& findings() { return *findings_; }
  // Reserves bytes within the limit of all copies. Returns false if too few are left.
  bool TakeCopied(uint64_t bytes) {
    if (copied_bytes_.fetch_add(bytes) + bytes <= options_.max_copied_together) return true;
    copied_bytes_ -= bytes;
    return false;
  }
  void ReturnCopied(uint64_t bytes) { copied_bytes_ -= bytes; }
  // Call on the relay's thread only.
  StreamClient& client() { return *client_; }
  // Removes a passage that has ended, and returns it.
  std::shared_ptr<Passage> Forget(uint64_t number) noexcept {
    const auto found = passages_.find(number);
    if (found == passages_.end()) return nullptr;
    return std::move(passages_.extract(found).mapped());
  }

 private:
  using Task = std::function<void()>;

  void Wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  }

  void Do(Task task) {
    {
      const MutexLock lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    Wake();
  }

  // Call when the client has disconnected: ends the request to the upstream.
  void Abandon(uint64_t number) {
    const auto found = passages_.find(number);
    if (found == passages_.end()) return;
    client_->Cancel(*found->second);
    passages_.erase(found);
  }

  void GoOn(uint64_t number) {
    const auto found = passages_.find(number);
    if (found != passages_.end()) client_->Pause(*found->second, false);
  }

  void Run() {
    constexpr double kForever = std::numeric_limits<double>::infinity();
    while (!is_ending_) {
      RunGuarded("relay", "to talk to the upstream", [&] { client_->Poll(kForever, wake_.get()); });
      uint64_t times = 0;
      [[maybe_unused]] const ssize_t got = read(wake_.get(), &times, sizeof(times));
      std::vector<Task> tasks;
      {
        const MutexLock lock(mutex_);
        tasks.swap(tasks_);
      }
      for (const Task& task : tasks) RunGuarded("relay", "a forwarded request", task);
    }
    for (const auto& [number, passage] : passages_) client_->Cancel(*passage);
    passages_.clear();
  }

  const RelayOptions options_;
  ExchangeQueue* const queue_;
  Findings* const findings_;
  OwnedFd wake_;  // an eventfd
  std::atomic<bool> is_ending_{false};
  std::atomic<uint64_t> num_requests_{0};
  std::atomic<uint64_t> copied_bytes_{0};
  Mutex mutex_;
  std::vector<Task> tasks_ GUARDED_BY(mutex_);
  // Used only by the relay's thread.
  std::unique_ptr<StreamClient> client_;
  std::map<uint64_t, std::shared_ptr<Passage>> passages_;
  std::unique_ptr<HttpServer> http_;
  std::thread thread_;
};

Passage::~Passage() {
  relay_.ReturnCopied(taken_bytes_);
}

bool Passage::TakeMemory(uint64_t bytes) {
  if (!relay_.TakeCopied(bytes)) return false;
  taken_bytes_ += bytes;
  return true;
}

void Passage::StopCopying(std::string_view why) {
  why_not_copied_ = why;
  copy_ = {};
  request_.body = {};
  relay_.ReturnCopied(std::exchange(taken_bytes_, 0));
}

void Passage::Send(StreamClient& client) {
  is_compared_ = IsCompared(request_.method, request_.path);
  if (is_compared_ && relay_.options().asks_for_token_ids)
    request_.body = WithTokenIds(std::move(request_.body));
  std::string headers;
  for (const auto& [name, value] : Passing(std::move(request_.headers)))
    headers += fmt::format("{}: {}\r\n", name, value);
  if (!request_.body.empty() || request_.method == "POST" || request_.method == "PUT")
    headers += fmt::format("content-length: {}\r\n", request_.body.size());
  // Sends GET instead of HEAD: the connection to the client omits the body.
  const std::string_view method = request_.method == "HEAD" ? "GET" : request_.method;
  const std::string target = OriginTarget(request_.method, request_.target);
  client.Forward(method, target, headers, request_.body, *this);
  // API keys are not needed after sending; the body is needed only for a copy.
  request_.headers.clear();
  if (!is_compared_) {
    request_.body = {};
  } else if (!TakeMemory(request_.body.size())) {
    StopCopying(kTooManyCopies);
  }
}

void Passage::OnHead(int status, std::string_view head) {
  has_head_ = true;
  response_ = HeadOf(status, head);
  is_event_stream_ = AsciiLower(response_.content_type).starts_with("text/event-stream");
  is_streamed_ = !HasLength(head) && status != 204 && status != 304;
  if (is_streamed_) writer_->StartStream(response_);
}

void Passage::OnBytes(std::string_view bytes) {
  answer_bytes_ += bytes.size();
  if (is_copied() && answer_bytes_ > relay_.options().max_copied_bytes)
    StopCopying("an answer that is too long to be copied");
  if (is_copied() && !TakeMemory(bytes.size())) StopCopying(kTooManyCopies);
  if (is_copied() && is_streamed_) copy_ += bytes;
  if (is_streamed_) {
    writer_->WriteChunk(bytes);
    if (writer_->backlogged()) relay_.client().Pause(*this, true);
  } else if (response_.body.size() + bytes.size() <= kMaxWholeBytes) {
    response_.body += bytes;
  } else {
    is_streamed_ = true;
    writer_->StartStream(response_);
    writer_->WriteChunk(response_.body);
    writer_->WriteChunk(bytes);
    if (is_copied()) copy_ = std::move(response_.body.append(bytes));
    response_.body = {};
  }
}

void Passage::OnEnd(double /*now*/, StreamEnd end) {
  // Removed from the list in any case; destroyed at the end of the function.
  const std::shared_ptr<Passage> self = relay_.Forget(number);
  const bool is_complete = has_head_ && end.error.empty();
  if (!is_complete) {
    relay_.findings().Failed();
    LOG_WARNING("shadow", "{} {}: the upstream failed: {}", request_.method, request_.path,
                end.error);
  }
  if (is_complete && is_compared_ && response_.status == 200) {
    if (!is_streamed_ && is_copied()) copy_ = response_.body;
    Keep();
  }
  if (!has_head_) {
    writer_->Send(BadGateway(end.error));
  } else if (!is_streamed_) {
    writer_->Send(is_complete ? std::move(response_) : BadGateway(end.error));
  } else if (is_complete) {
    writer_->EndStream();
  }  // if the upstream ended early, destroying the writer ends the client's stream early, too
}

void Passage::Keep() {
  if (!is_copied()) {
    relay_.findings().NotJudged(std::string(why_not_copied_));
    return;
  }
  Exchange exchange{.number = static_cast<int64_t>(number),
                    .path = request_.path,
                    .request = std::move(request_.body),
                    .response = std::move(copy_),
                    .is_stream = is_event_stream_};
  if (!relay_.queue().Offer(std::move(exchange))) relay_.findings().Dropped();
}

}  // namespace

Result<std::unique_ptr<Relay>> Relay::Start(RelayOptions options, ExchangeQueue* queue,
                                            Findings* findings) {
  auto relay = std::make_unique<RelayImpl>(std::move(options), queue, findings);
  RETURN_IF_ERROR(relay->Open());
  return relay;
}

}  // namespace sluice::shadow
