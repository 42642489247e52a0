// The HTTP server: connections, limits and timeouts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"
#include "server/http/http_types.h"
#include "server/server_config.h"

namespace sluice {

// HTTP/1.1 (and 1.0 without keep-alive) over TCP or a unix socket, with TLS if the configuration
// has a certificate. Every connection belongs to one I/O thread. A slow client holds only the
// memory of its own connection: at most max_body_bytes of a request, and an answer's unsent data,
// which handlers limit by ResponseWriter::backlogged(). Thread safety: all methods may be called
// from any thread.
class HttpServer {
 public:
  // Called on an I/O thread once an answer was sent or its client has disconnected. Must not block.
  using RecordFunction = std::function<void(const HttpExchangeRecord&)>;

  // Binds and listens; connections wait in the system's queue until Start(). With
  // ServerConfig::listen_when_ready it does not listen, so connections are refused until
  // OpenDoor(). kAddressInUse if the port or path is taken. kInvalidArgument if the host is not an
  // address of this machine, or if a TLS file cannot be used. `handler` must outlive the server.
  // The memory of requests and answers is taken from `memory`.
  static Result<std::unique_ptr<HttpServer>> Listen(const ServerConfig& config,
                                                    std::shared_ptr<RequestMemory> memory,
                                                    HttpHandler* handler, RecordFunction record);
  virtual ~HttpServer() = default;

  virtual uint16_t port() const = 0;  // 0 for a unix socket
  virtual void Start() = 0;
  // Reads the TLS files again. If they are unusable, the old ones stay in use. Logs the outcome.
  virtual void ReloadCertificates() = 0;
  // Reads the TLS files again if they have changed, once they are the same in two consecutive
  // calls.
  virtual void RefreshCertificates() = 0;
  // With ServerConfig::listen_when_ready: starts to listen. Does nothing after StopAccepting().
  virtual Status OpenDoor() = 0;
  // Makes every later answer announce that its connection will be closed, and closes the connection
  // after the answer. Idle connections stay open, because a request may be on its way.
  virtual void BeginLeaving() = 0;
  // Accepts the connections that wait in the system's queue. The system refuses later ones.
  virtual void StopAccepting() = 0;
  // Closes idle connections now and busy ones after their answer. Still accepts new ones.
  virtual void BeginDrain() = 0;
  // Number of requests whose answer is not completely sent.
  virtual int64_t num_exchanges() const = 0;
  virtual int64_t num_connections() const = 0;
  // Closes everything and joins the threads. The destructor calls it.
  virtual void Stop() = 0;
};

}  // namespace sluice
