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

// Life cycle: Create binds the port and answers /health (503 "loading") and /metrics while the
// model loads, or, with ServerConfig::listen_when_ready, refuses connections; Attach connects the
// engine, and requests are served; Run blocks until a drain has ended. After Run the engine is not
// used any more; it is destroyed before the server, to whose observer it reports. Thread safety:
// BeginDrain and Stop may be called from any thread, also from a signal-handling thread.
class Server {
 public:
  // kAddressInUse if the port is taken, naming it and what to do; errors of ResponseDatabase where
  // the stored responses cannot be read.
  static Result<std::unique_ptr<Server>> Create(ServerConfig config);
  virtual ~Server() = default;

  virtual uint16_t port() const = 0;
  // Before Attach: how much of the model was downloaded, for /health; a total of 0 ends that.
  virtual void SetDownload(int64_t done_bytes, int64_t total_bytes) = 0;
  // What the i-th engine reports to.
  virtual EngineObserver* observer(int i) = 0;
  // REQUIRES: `text` was loaded with the server's configuration, for the engine's model.
  // Errors of listening, with listen_when_ready.
  virtual Status Attach(Engine* engine, ModelText text) = 0;

  // Reads the file of API keys and the files of TLS again. Where one cannot be used, what there was
  // stays; a line of the log says what happened.
  virtual void Reload() = 0;

  // Serves until BeginDrain() has completed or Stop() is called. Returns the exit code.
  virtual int Run() = 0;
  // /ready answers 503, so that proxies send no more requests here, and what comes is served all
  // the same; answers say that their connection is closed after them.
  virtual void BeginLeaving() = 0;
  // New connections are refused; requests on open ones are served. REQUIRES: BeginLeaving() was
  // called.
  virtual void StopAccepting() = 0;
  // C9: new requests are answered 503; running ones may finish within the engine's grace time; then
  // Run returns 0.
  virtual void BeginDrain() = 0;
  // Ends at once: Run returns, or, if it was never called, everything is closed when this returns.
  virtual void Stop() = 0;
};

}  // namespace sluice
