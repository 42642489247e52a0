// The HTTP server: the OpenAI API in front of one engine.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "engine/engine.h"
#include "server/model_text.h"
#include "server/server_config.h"

namespace sluice {

class Metrics;

// Life cycle: Create binds the port. While the model loads, the server answers /health (503
// "loading") and /metrics or, with ServerConfig::listen_when_ready, refuses connections. Attach
// connects the engine, and requests are served. Run blocks until a drain has ended; after it, the
// engine is not used. The engine reports to the server's observer and must be destroyed before the
// server. Thread safety: BeginDrain and Stop may be called from any thread, also from a
// signal-handling thread.
class Server {
 public:
  // kAddressInUse if the port is taken; the message names it and what to do. Errors of
  // ResponseDatabase if the stored responses cannot be read.
  static Result<std::unique_ptr<Server>> Create(ServerConfig config);
  virtual ~Server() = default;

  virtual uint16_t port() const = 0;
  // Sets the progress of the model's download, for /health. A total of 0: no download. Call before
  // Attach.
  virtual void SetDownload(int64_t done_bytes, int64_t total_bytes) = 0;
  // The observer to which the i-th engine reports.
  virtual EngineObserver* observer(int i) = 0;
  // Connects the engine. With listen_when_ready, also starts to listen, and returns an error if
  // that fails. REQUIRES: `text` was loaded with the server's configuration, for the engine's
  // model.
  virtual Status Attach(Engine* engine, ModelText text) = 0;

  // Reads the API key file and the TLS files again. If one is unusable, the old contents stay in
  // use. Logs the outcome.
  virtual void Reload() = 0;

  // Serves until BeginDrain() has completed or Stop() is called. Returns the exit code.
  virtual int Run() = 0;
  // Makes /ready answer 503, so that proxies stop sending requests to this server. Requests are
  // still served. Answers announce that their connection will be closed.
  virtual void BeginLeaving() = 0;
  // Refuses new connections; requests on open ones are served. REQUIRES: BeginLeaving() was called.
  virtual void StopAccepting() = 0;
  // Answers new requests with 503. Running requests may finish within the engine's grace time; then
  // Run returns 0 (C9 in docs/engine-contract.md).
  virtual void BeginDrain() = 0;
  // Ends immediately: makes Run return. If Run was never called, closes everything before Stop
  // returns.
  virtual void Stop() = 0;
};

}  // namespace sluice
