// A server and its engine in this process. Starts and stops them in the required order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/configs.h"
#include "engine/engine.h"
#include "engine/process_ranks.h"
#include "events/event_settings.h"
#include "receipt/signing_key.h"
#include "recording/flight_recorder.h"
#include "server/model_text.h"
#include "server/server.h"

namespace sluice::cli {

// The place where the plan and the progress of a load are shown. kProgress: only a progress bar.
// kTerminal and kLog: also the plan, on stderr or in the log.
enum class LoadReport { kNowhere, kProgress, kTerminal, kLog };

// Loads tokenizer and templates. Call before the weights are loaded, because these files are small
// and errors in them are then found early.
Result<ModelText> LoadText(const ServerConfig& server, const EngineConfig& engine,
                           const ModelArgument& model);
// Returns the ids of the tokens whose logits are the classifier's classes.
Result<std::vector<int32_t>> ClassifierTokenIds(const EngineConfig& engine, const ModelText& text);

// The settings for making receipts.
struct ReceiptSettings {
  SigningKey key;
  bool with_tokens = false;
  // Returns the arithmetic profile of an engine that has been loaded.
  std::function<json::Value(const EngineInfo& info)> profile;
};

class Serving {
 public:
  Serving();
  // Binds the port. Until a model is attached, /health answers 503.
  static Result<std::unique_ptr<Serving>> Bind(ServerConfig config);
  ~Serving();

  // Checks, without listening, what Bind and Load check before they load weights: options, keys,
  // certificates, the port, tokenizer and templates, and the plan, which is printed. If the model
  // is a local folder, also checks that no shard is missing.
  static Status Check(ServerConfig config, const EngineConfig& engine, const ModelArgument& model);

  // Loads the model, its text files before its weights, and attaches it to the server. `report`:
  // where plan and progress are shown. `processes`: the ranks that compute the model, null if they
  // are threads of this process.
  Status Load(EngineConfig config, const ModelArgument& model, LoadReport report,
              const ProcessRanks* processes = nullptr);

  // Makes later calls of Load() record requests and steps. `recorder` is kept until the end.
  void Record(std::unique_ptr<recording::FlightRecorder> recorder);
  // Makes later calls of Load() issue receipts that are signed with the key.
  void IssueReceipts(ReceiptSettings settings) { receipts_ = std::move(settings); }

  // Makes later calls of Load() create engines that publish cache events.
  void PublishCacheEvents(CacheEventSettings settings) { cache_events_ = std::move(settings); }

  Server& server() { return *server_; }
  const Engine& engine() const { return *engine_; }
  Engine& engine() { return *engine_; }

 private:
  // Computes the digest of a model's weights on its own thread.
  class DigestThread;

  ServerConfig config_;
  std::optional<CacheEventSettings> cache_events_;  // nullopt: nothing is published
  std::optional<ReceiptSettings> receipts_;         // nullopt: no receipts are issued
  // Outlives the server and the engine, which report to it; null: nothing is recorded.
  std::unique_ptr<recording::FlightRecorder> recorder_;
  std::unique_ptr<DigestThread> digest_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace sluice::cli
