// One HTTP server for several models, each of which has its own engine, tokenizer and API.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "server/door/door_model.h"

namespace sluice {

// Forwards a request to the model that its body or its query names, as ModelSlots describes.
// Answers routes that need no model itself. GET /v1/models, /health, /ready and /metrics cover all
// models.
//
// Life cycle: Create binds the port; Start begins to load the pinned models; Run blocks until a
// drain has ended. Thread safety: all methods may be called from any thread.
class DoorServer {
 public:
  // Errors: the same as for Server::Create, and errors of the models' API keys. REQUIRES: names
  // differ.
  static Result<std::unique_ptr<DoorServer>> Create(DoorConfig config,
                                                    std::vector<DoorModel> models);
  virtual ~DoorServer() = default;

  virtual uint16_t port() const = 0;
  // Begins to load the pinned models.
  virtual void Start() = 0;
  // Whether each pinned model is loaded or has failed.
  virtual bool IsReady() const = 0;
  // Whether a model is being loaded. A load cannot be interrupted.
  virtual bool IsLoading() const = 0;

  // The following are as in Server.
  virtual Status OpenDoor() = 0;  // only with listen_when_ready
  virtual void Reload() = 0;
  virtual int Run() = 0;
  virtual void BeginLeaving() = 0;
  virtual void StopAccepting() = 0;
  virtual void BeginDrain() = 0;
  virtual void Stop() = 0;
};

}  // namespace sluice
