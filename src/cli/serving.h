// A server and its engine in this process, in the order in which they must start and stop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/configs.h"
#include "engine/engine.h"
#include "engine/process_ranks.h"
#include "events/event_settings.h"
#include "server/model_text.h"
#include "server/server.h"

namespace sluice::cli {

// Where the plan and the progress of a load are shown.
// kProgress: on a terminal the progress alone.
enum class LoadReport { kNowhere, kProgress, kTerminal, kLog };

// The model's text, which is small and may be wrong: read before what is large.
Result<ModelText> LoadText(const ServerConfig& server, const EngineConfig& engine,
                           const ModelArgument& model);
// The ids of the tokens that a classifier is made of.
Result<std::vector<int32_t>> ClassifierTokenIds(const EngineConfig& engine, const ModelText& text);

class Serving {
 public:
  // Binds the port; /health answers 503 from now on.
  static Result<std::unique_ptr<Serving>> Bind(ServerConfig config);
  ~Serving();

  // What Bind and Load would refuse before they load weights, without listening: options, keys and
  // certificates, the port, tokenizer and templates, the plan, which is printed, and, where the
  // model is a folder of this machine, whether all its shards are there.
  static Status Check(ServerConfig config, const EngineConfig& engine, const ModelArgument& model);

  // Loads the model, its text before its weights, and attaches it to the server; shows the plan and
  // the progress as `report` says. `processes`: of the ranks that compute the model, where they are
  // others than threads of this one.
  Status Load(EngineConfig config, const ModelArgument& model, LoadReport report,
              const ProcessRanks* processes = nullptr);

  // From now on Load() makes engines that publish cache events.
  void PublishCacheEvents(CacheEventSettings settings) { cache_events_ = std::move(settings); }

  Server& server() { return *server_; }
  const Engine& engine() const { return *engine_; }

 private:
  ServerConfig config_;
  std::optional<CacheEventSettings> cache_events_;  // none: nothing is published
  std::unique_ptr<Server> server_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace sluice::cli
