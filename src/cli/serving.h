// A server and its engine in this process, in the order in which they must start and stop.
#pragma once

#include <memory>

#include "base/result.h"
#include "cli/configs.h"
#include "engine/engine.h"
#include "engine/process_ranks.h"
#include "server/server.h"

namespace sluice::cli {

// Where the plan and the progress of a load are shown.
enum class LoadReport { kNowhere, kTerminal, kLog };

class Serving {
 public:
  // Binds the port; /health answers 503 from now on.
  static Result<std::unique_ptr<Serving>> Bind(ServerConfig config);
  ~Serving();

  // Loads the model, its text before its weights, and attaches it to the server; shows the plan and
  // the progress as `report` says. `processes`: of the ranks that compute the model, where they are
  // others than threads of this one.
  Status Load(EngineConfig config, const ModelArgument& model, LoadReport report,
              const ProcessRanks* processes = nullptr);

  Server& server() { return *server_; }
  const Engine& engine() const { return *engine_; }

 private:
  ServerConfig config_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace sluice::cli
