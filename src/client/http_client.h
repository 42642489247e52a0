// A small HTTP/1.1 client for talking to a server on the same network: one request a connection,
// bodies whole or as server-sent events.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "client/url.h"

namespace sluice {

struct ClientResponse {
  int status = 0;
  std::string body;
};

// Thread safety: const after construction; every call opens its own connection, so calls may run
// side by side.
class HttpClient {
 public:
  // `headers` go with every request.
  explicit HttpClient(Url url, std::map<std::string, std::string> headers = {});

  // kUnavailable if the server cannot be reached or breaks off; any status is a success.
  Result<ClientResponse> Get(std::string_view path) const;
  Result<ClientResponse> Post(std::string_view path, std::string_view body) const;

  // Sends a request whose answer is a stream and calls `on_event` with the data of each event,
  // until it returns false, the stream ends, or `cancel_fd` (-1: none) becomes readable, be it
  // while it connects or sends (kCancelled); then the connection is closed. An answer that is not a
  // stream is returned with its body.
  Result<ClientResponse> PostStream(std::string_view path, std::string_view body,
                                    const std::function<bool(std::string_view data)>& on_event,
                                    int cancel_fd = -1) const;

  const Url& url() const { return url_; }

 private:
  Result<ClientResponse> Send(const std::string& request,
                              const std::function<bool(std::string_view data)>& on_event,
                              int cancel_fd) const;
  std::string Head(std::string_view method, std::string_view path, size_t body_size) const;

  const Url url_;
  const std::map<std::string, std::string> headers_;
};

}  // namespace sluice
