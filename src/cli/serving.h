// A server and its engine in this process, in the order in which they must start and stop.
#pragma once

#include <memory>

#include "base/result.h"
#include "cli/configs.h"
#include "engine/engine.h"
#include "server/server.h"

namespace sluice::cli {

class Serving {
 public:
  // Binds the port; /health answers 503 from now on.
  static Result<std::unique_ptr<Serving>> Bind(ServerConfig config);
  ~Serving();

  // Loads the model and attaches it to the server; shows the plan and the progress unless `quiet`.
  Status Load(const EngineConfig& config, const ModelArgument& model, bool quiet);

  Server& server() { return *server_; }
  const Engine& engine() const { return *engine_; }

 private:
  std::unique_ptr<Server> server_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace sluice::cli
