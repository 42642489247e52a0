// A request that arrives. Internal to this folder: it includes Beast.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "server/http/http_types.h"
#include "server/http/request_parser.h"

namespace sluice {

// The path that a request's target asks for, percent-decoded, and the query behind it.
inline std::pair<std::string, std::string_view> SplitTarget(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.starts_with(scheme)) {
      const size_t slash = target.find('/', scheme.size());
      target = slash == std::string_view::npos ? "/" : target.substr(slash);
    }
  }
  target = target.substr(0, target.find('#'));
  const size_t question = target.find('?');
  return {PercentDecode(target.substr(0, question)),
          question == std::string_view::npos ? "" : target.substr(question + 1)};
}

// What a head takes, about.
inline uint64_t HeadBytes(const HttpRequest& head) {
  uint64_t bytes = head.target.size();
  for (const HttpHeader& header : head.headers) bytes += header.name.size() + header.value.size();
  return bytes;
}

// What is needed of a request until it is dispatched. A stream may be open for hours: it keeps none
// of this. Thread safety: one thread at a time.
struct IncomingRequest {
  explicit IncomingRequest(std::shared_ptr<RequestMemory> memory) : parser(std::move(memory)) {}

  // Fills `head` from what was parsed; `local_name` is called where the request names no host.
  // REQUIRES: the parser has the head.
  template <typename LocalName>
  void TakeHead(const std::string& client, const LocalName& local_name) {
    head.method = parser.method();
    head.target = parser.target();
    std::tie(head.path, head.query) = SplitTarget(head.target);
    head.headers = std::move(parser.fields());
    head.headers.shrink_to_fit();
    const std::string* host = head.Header("host");
    head.host = host != nullptr && !host->empty() ? *host : local_name();
    head.client = client;
  }

  HttpRequestParser parser;
  HttpRequest head;                   // without body
  std::optional<HttpResponse> early;  // the answer, where the head decides it
};

// What the access log tells of a request.
struct RecordedRequest {
  std::string method, target, id;  // no method: nothing is told
  uint64_t body_bytes = 0;
  std::chrono::steady_clock::time_point start;
};

}  // namespace sluice
