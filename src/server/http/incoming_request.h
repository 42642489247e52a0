// A request while it is received. Internal to this folder, because it includes Beast.
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

// Returns the percent-decoded path of a request's target, and its query.
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

// Approximate memory of a head.
inline uint64_t HeadBytes(const HttpRequest& head) {
  uint64_t bytes = head.target.size();
  for (const HttpHeader& header : head.headers) bytes += header.name.size() + header.value.size();
  return bytes;
}

// Data of a request until it is dispatched. It is not kept afterwards, because a stream may be open
// for hours. Thread safety: one thread at a time.
struct IncomingRequest {
  explicit IncomingRequest(std::shared_ptr<RequestMemory> memory) : parser(std::move(memory)) {}

  // Fills `head` from the parser. Calls `local_name` if the request names no host. REQUIRES: the
  // parser has the head.
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
  HttpRequest head;                   // without the body
  std::optional<HttpResponse> early;  // the answer, if the head is enough to determine it
};

// A request's fields for the access log.
struct RecordedRequest {
  std::string method, target, id;  // if the method is empty, nothing is logged
  uint64_t body_bytes = 0;
  std::chrono::steady_clock::time_point start;
};

}  // namespace sluice
