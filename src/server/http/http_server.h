// Connections: bytes in, requests out, responses back, within limits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"
#include "server/http/http_types.h"
#include "server/server_config.h"

namespace sluice {

// HTTP/1.1 (and 1.0 without keep-alive) over TCP. Every connection lives on one I/O thread; a
// connection that reads or writes slowly holds nothing but its own memory: at most max_body_bytes
// in, and out what its handler gives it beyond ResponseWriter::backlogged(). Thread safety: all
// methods may be called from any thread.
class HttpServer {
 public:
  // Called on an I/O thread once an answer has been sent or its client is gone; must not block.
  using RecordFunction = std::function<void(const HttpExchangeRecord&)>;

  // Binds and listens; connections wait in the system's queue until Start(). kAddressInUse if the
  // port is taken, kInvalidArgument if the host is no address of this machine. `handler` outlives
  // the server.
  static Result<std::unique_ptr<HttpServer>> Listen(const ServerConfig& config,
                                                    HttpHandler* handler, RecordFunction record);
  virtual ~HttpServer() = default;

  virtual uint16_t port() const = 0;
  virtual void Start() = 0;
  // Idle connections are closed, busy ones after their answer; new ones are still taken.
  virtual void BeginDrain() = 0;
  // Requests whose answer is not completely sent.
  virtual int64_t num_exchanges() const = 0;
  virtual int64_t num_connections() const = 0;
  // Closes everything and joins the threads. Called by the destructor.
  virtual void Stop() = 0;
};

}  // namespace sluice
