// One HTTP request at a time to a server on the same network: bodies whole or as server-sent
// events.
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

// Blocks its caller; every call opens a connection of its own (client/stream_client.h).
// Thread safety: constant after construction, so calls may run side by side.
class HttpClient {
 public:
  // Gets the data of one event; false ends the request.
  using OnEvent = std::function<bool(std::string_view data)>;

  // `headers` go with every request. `tls`: of https; null: trusts as the system does.
  explicit HttpClient(Url url, const std::map<std::string, std::string>& headers = {},
                      std::shared_ptr<const ClientTls> tls = {});

  // kUnavailable if the server cannot be reached or breaks off; any status is a success.
  Result<ClientResponse> Get(std::string_view path) const;
  Result<ClientResponse> Post(std::string_view path, std::string_view body) const;

  // Sends a request whose answer is a stream and calls `on_event` with the data of each event,
  // until it returns false, the stream ends, or `cancel_fd` (-1: none) becomes readable, also while
  // the client connects or sends (kCancelled); then the connection is closed. An answer that is no
  // stream, or whose status is not 200, is returned with its body.
  Result<ClientResponse> PostStream(std::string_view path, std::string_view body,
                                    const OnEvent& on_event, int cancel_fd = -1) const;

  const Url& url() const { return url_; }

 private:
  // Without a body it is a GET.
  Result<ClientResponse> Send(std::string_view path, std::optional<std::string_view> body,
                              const OnEvent& on_event, int cancel_fd) const;

  const Url url_;
  const std::shared_ptr<const ClientTls> tls_;
  std::string headers_;  // as lines
};

}  // namespace sluice
