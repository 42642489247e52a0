// The HTTP server: connections, limits and timeouts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"
#include "server/http/http_types.h"
#include "server/server_config.h"

namespace sluice {

// HTTP/1.1 (and 1.0 without keep-alive) over TCP. Every connection lives on one I/O thread; a
// slow client holds no more than the memory of its connection: at most max_body_bytes of a request,
// and what its handler writes beyond ResponseWriter::backlogged(). Thread safety: all
// methods may be called from any thread.
class HttpServer {
 public:
  // Called on an I/O thread once an answer has been sent or its client is gone; must not block.
  using RecordFunction = std::function<void(const HttpExchangeRecord&)>;

  // Binds and listens; connections wait in the system's queue until Start(). kAddressInUse if the
  // port is taken, kInvalidArgument if the host is no address of this machine. `handler` outlives
  // the server. What requests and answers hold is taken from `memory`.
  static Result<std::unique_ptr<HttpServer>> Listen(const ServerConfig& config,
                                                    std::shared_ptr<RequestMemory> memory,
                                                    HttpHandler* handler, RecordFunction record);
  virtual ~HttpServer() = default;

  virtual uint16_t port() const = 0;
  virtual void Start() = 0;
  // Closes idle connections now and busy ones after their answer; new ones are still accepted.
  virtual void BeginDrain() = 0;
  // Requests whose answer is not completely sent.
  virtual int64_t num_exchanges() const = 0;
  virtual int64_t num_connections() const = 0;
  // Closes everything and joins the threads. Called by the destructor.
  virtual void Stop() = 0;
};

}  // namespace sluice
