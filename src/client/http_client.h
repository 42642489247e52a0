// Sends one HTTP request at a time, and returns the body of the answer or its server-sent events.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "client/client_tls.h"
#include "client/url.h"

namespace sluice {

struct ClientResponse {
  int status = 0;
  std::string body;
};

// Blocks its caller. Every call opens its own connection (client/stream_client.h). Thread safety:
// immutable after construction, so calls may run concurrently.
class HttpClient {
 public:
  // Receives the data of one event; returning false ends the request.
  using OnEvent = std::function<bool(std::string_view data)>;

  // `headers` are sent with every request. `tls`: settings for https; null: the system's CA
  // certificates are trusted.
  explicit HttpClient(Url url, const std::map<std::string, std::string>& headers = {},
                      std::shared_ptr<const ClientTls> tls = {});

  // kUnavailable if the server cannot be reached or closes the connection early. An answer with any
  // status counts as success.
  Result<ClientResponse> Get(std::string_view path) const;
  Result<ClientResponse> Post(std::string_view path, std::string_view body) const;

  // Sends a request whose answer is a stream. Calls `on_event` with the data of each event until it
  // returns false, the stream ends, or `cancel_fd` (-1: none) becomes readable (kCancelled, also
  // while connecting or sending). Then closes the connection. If the answer is not a stream, or if
  // its status is not 200, returns it with its body. Throws what `on_event` throws.
  Result<ClientResponse> PostStream(std::string_view path, std::string_view body,
                                    const OnEvent& on_event, int cancel_fd = -1) const;

  const Url& url() const { return url_; }

 private:
  // Sends a POST, or a GET if there is no body.
  Result<ClientResponse> Send(std::string_view path, std::optional<std::string_view> body,
                              const OnEvent& on_event, int cancel_fd) const;

  const Url url_;
  const std::shared_ptr<const ClientTls> tls_;
  std::string headers_;  // header lines
};

}  // namespace sluice
