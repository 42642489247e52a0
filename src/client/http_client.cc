#include "client/http_client.h"

#include <exception>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "client/stream_client.h"

namespace sluice {
namespace {

// Passes on the events of one request until the callback returns false.
class OneRequest : public StreamHandler {
 public:
  explicit OneRequest(const HttpClient::OnEvent& on_event) : on_event_(on_event) {}

  void OnEvent(double, std::string_view data) override {
    if (over_) return;
    try {
      over_ = !on_event_(data);
    } catch (...) {
      exception_ = std::current_exception();
      over_ = true;
    }
  }
  void OnEnd(double, StreamEnd end) override {
    if (!over_) end_ = std::move(end);
    over_ = true;
  }
  bool over() const { return over_; }
  // Rethrows the callback's exception, if there was one.
  StreamEnd& end() {
    if (exception_) std::rethrow_exception(exception_);
    return end_;
  }

 private:
  const HttpClient::OnEvent& on_event_;
  bool over_ = false;
  std::exception_ptr exception_;
  StreamEnd end_{200, "", "", ""};  // the result if the caller stopped reading
};

bool IgnoreEvent(std::string_view) {
  return true;
}

}  // namespace

HttpClient::HttpClient(Url url, const std::map<std::string, std::string>& headers,
                       std::shared_ptr<const ClientTls> tls)
    : url_(std::move(url)), tls_(std::move(tls)) {
  for (const auto& [name, value] : headers) headers_ += fmt::format("{}: {}\r\n", name, value);
}

Result<ClientResponse> HttpClient::Get(std::string_view path) const {
  return Send(path, std::nullopt, IgnoreEvent, -1);
}

Result<ClientResponse> HttpClient::Post(std::string_view path, std::string_view body) const {
  return Send(path, body, IgnoreEvent, -1);
}

Result<ClientResponse> HttpClient::PostStream(std::string_view path, std::string_view body,
                                              const OnEvent& on_event, int cancel_fd) const {
  return Send(path, body, on_event, cancel_fd);
}

Result<ClientResponse> HttpClient::Send(std::string_view path, std::optional<std::string_view> body,
                                        const OnEvent& on_event, int cancel_fd) const {
  constexpr double kForever = std::numeric_limits<double>::infinity();
  OneRequest request(on_event);
  ASSIGN_OR_RETURN(
      const std::unique_ptr<StreamClient> client,
      StreamClient::Create(
          {.url = url_, .tls = tls_, .keep_alive = false, .timeout_seconds = kForever}));
  if (body) {
    client->Post(path, headers_, *body, request);
  } else {
    client->Get(path, headers_, request);
  }
  while (!request.over()) {
    if (!client->Poll(kForever, cancel_fd)) return Fail(ErrorCode::kCancelled, "cancelled");
  }
  StreamEnd& end = request.end();
  if (!end.unreachable.empty()) {
    if (url_.tls) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("no connection to {}: {}", ServerText(url_), end.unreachable), "url");
    }
    return Fail(ErrorCode::kUnavailable,
                fmt::format("no server answers at {} ({}); start one with `sluice serve MODEL {}`",
                            ServerText(url_), end.unreachable,
                            url_.socket.empty() ? fmt::format("--port {}", url_.port)
                                                : "--uds " + url_.socket),
                "url");
  }
  if (!end.error.empty()) return Fail(ErrorCode::kUnavailable, std::move(end.error));
  return ClientResponse{end.status, std::move(end.body)};
}

}  // namespace sluice
