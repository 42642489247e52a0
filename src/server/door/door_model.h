// A model behind a door that has several, and how it is loaded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "server/model_text.h"
#include "server/server_config.h"

namespace sluice {

// What a load makes.
struct LoadedModel {
  std::unique_ptr<Engine> engine;
  ModelText text;
};

// Loads one model, again and again. Thread safety: one call at a time, on any thread.
class ModelLoader {
 public:
  using Progress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

  virtual ~ModelLoader() = default;
  // Downloads what is missing and plans: the bytes of memory that the model takes once it is
  // loaded.
  virtual Result<int64_t> Plan(const Progress& downloaded) = 0;
  // REQUIRES: the last Plan() succeeded. `observer_of` is as in Engine::Hooks.
  virtual Result<LoadedModel> Load(std::function<EngineObserver*(int i)> observer_of,
                                   Progress loaded) = 0;
};

struct DoorModel {
  std::string name;                   // by which requests ask for it
  std::vector<std::string> adapters;  // names of adapters that are served with it from the start
  bool is_pinned = false;             // loaded at the start, and never put out
  int64_t priority = 0;               // those of a higher one are loaded first and leave last
  ServerConfig config;                // of its answers, its API keys and its limits
  std::unique_ptr<ModelLoader> loader;
};

struct DoorConfig {
  // What the port, logs and routes without a model go by; its API keys are those of all models,
  // too.
  ServerConfig server;
  int64_t budget_bytes = 0;   // that loaded models may take together
  double wait_seconds = 600;  // that a request waits for its model
  int64_t max_waiting = 256;  // requests that wait for each
  double retry_seconds = 10;  // after a load that failed
};

}  // namespace sluice
