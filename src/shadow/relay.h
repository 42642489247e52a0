// An HTTP server that forwards every request to the upstream, and every answer to the client,
// unchanged. It keeps copies of the requests and answers that are compared.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "client/client_tls.h"
#include "client/url.h"
#include "server/server_config.h"
#include "shadow/exchange_queue.h"
#include "shadow/findings.h"

namespace sluice::shadow {

struct RelayOptions {
  ServerConfig server;  // the address to listen on, and the limits of requests
  Url upstream;
  // For https; null: the system's certificate authorities are trusted.
  std::shared_ptr<const ClientTls> tls;
  // Whether return_token_ids is added to requests that are compared. Clients also receive the ids.
  bool asks_for_token_ids = false;
  // Limit for one answer; a longer answer is not compared.
  uint64_t max_copied_bytes = uint64_t{16} << 20;
  // Maximum bytes of all copies of requests and answers in progress. Answers that would exceed it
  // are not compared.
  uint64_t max_copied_together = uint64_t{256} << 20;
};

// Clients' headers, including API keys, are sent to the upstream and not stored. Thread safety: all
// methods may be called from any thread.
class Relay {
 public:
  // Binds, listens and starts to forward. Complete answers with status 200 to completions and chats
  // go to `queue`; `findings` counts the results of requests. Both outlive the relay. Errors: those
  // of HttpServer::Listen and StreamClient::Create.
  static Result<std::unique_ptr<Relay>> Start(RelayOptions options, ExchangeQueue* queue,
                                              Findings* findings);
  virtual ~Relay() = default;

  virtual uint16_t port() const = 0;
  // Stops accepting connections; requests in flight continue.
  virtual void BeginDrain() = 0;
  // Returns the number of requests whose answer has not been sent completely.
  virtual int64_t num_exchanges() const = 0;
};

}  // namespace sluice::shadow
