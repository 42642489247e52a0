// The HTTP server: the OpenAI API in front of one engine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "base/result.h"
#include "engine/engine.h"
#include "server/server_config.h"

namespace sluice {

class Metrics;

// Life cycle: Create binds the port and answers /health (503 "loading") and /metrics while the
// model loads; Attach connects the engine, and requests are served; Run blocks until a drain has
// ended. After Run the engine is not used any more; it is destroyed before the server, to whose
// observer it reports. Thread safety: BeginDrain and Stop may be called from any thread, also from
// a signal-handling thread.
class Server {
 public:
  // kAddressInUse if the port is taken, naming it and what to do.
  static Result<std::unique_ptr<Server>> Create(ServerConfig config);
  virtual ~Server() = default;

  virtual uint16_t port() const = 0;
  // What the engine's hooks report to.
  virtual EngineObserver* observer() = 0;
  // `model_folder` holds tokenizer and chat template. Errors: a tokenizer or template that cannot
  // be used, or that disagrees with the model (more tokens than the vocabulary has rows).
  virtual Status Attach(Engine* engine, const std::filesystem::path& model_folder) = 0;

  // Serves until BeginDrain() has completed or Stop() is called. Returns the exit code.
  virtual int Run() = 0;
  // C9: new work is answered 503; running requests may finish within the engine's grace time; then
  // Run returns 0.
  virtual void BeginDrain() = 0;
  // Ends at once: Run returns, or, if it was never called, everything is closed when this returns.
  virtual void Stop() = 0;
};

}  // namespace sluice
