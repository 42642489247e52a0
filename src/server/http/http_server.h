// The HTTP server: connections, limits and timeouts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"
#include "server/http/http_types.h"
#include "server/server_config.h"

namespace sluice {

// HTTP/1.1 (and 1.0 without keep-alive) over TCP or a unix socket, in TLS where the configuration
// has a certificate. Every connection lives on one I/O thread; a slow client holds no more than the
// memory of its connection: at most max_body_bytes of a request, and what its handler writes beyond
// ResponseWriter::backlogged(). Thread safety: all methods may be called from any thread.
class HttpServer {
 public:
  // Called on an I/O thread once an answer has been sent or its client is gone; must not block.
  using RecordFunction = std::function<void(const HttpExchangeRecord&)>;

  // Binds and listens; connections wait in the system's queue until Start(). With
  // ServerConfig::listen_when_ready it does not listen: connections are refused until OpenDoor().
  // kAddressInUse if the port or path is taken, kInvalidArgument if the host is no address of this
  // machine or a file of TLS cannot be used. `handler` outlives the server. What requests and
  // answers hold is taken from `memory`.
  static Result<std::unique_ptr<HttpServer>> Listen(const ServerConfig& config,
                                                    std::shared_ptr<RequestMemory> memory,
                                                    HttpHandler* handler, RecordFunction record);
  virtual ~HttpServer() = default;

  virtual uint16_t port() const = 0;  // 0 at a unix socket
  virtual void Start() = 0;
  // Reads the files of TLS again; what cannot be used is logged, and what there was stays.
  virtual void ReloadCertificates() = 0;
  // The same where they have changed since the last call but one, and no longer change.
  virtual void RefreshCertificates() = 0;
  // With ServerConfig::listen_when_ready: listens. Nothing after StopAccepting().
  virtual Status OpenDoor() = 0;
  // Every answer says from now on that its connection is closed after it, and it is. Idle
  // connections stay open: a request may be on its way there.
  virtual void BeginLeaving() = 0;
  // Takes the connections that wait in the system's queue; later ones are refused by the system.
  virtual void StopAccepting() = 0;
  // Closes idle connections now and busy ones after their answer; new ones are still accepted.
  virtual void BeginDrain() = 0;
  // Requests whose answer is not completely sent.
  virtual int64_t num_exchanges() const = 0;
  virtual int64_t num_connections() const = 0;
  // Closes everything and joins the threads. Called by the destructor.
  virtual void Stop() = 0;
};

}  // namespace sluice
