#include "cli/serving.h"

#include <atomic>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/firewall.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/generation_config.h"
#include "checkpoint/weights_digest.h"
#include "cli/progress.h"
#include "cli/version.h"
#include "events/event_publisher.h"
#include "models/model_config.h"
#include "models/model_task.h"
#include "server/model_text.h"

namespace sluice::cli {

Result<ModelText> LoadText(const ServerConfig& server, const EngineConfig& engine,
                           const ModelArgument& model) {
  ASSIGN_OR_RETURN(const ModelConfig described,
                   LoadModelConfig(engine.model_folder, engine.config_overrides));
  ASSIGN_OR_RETURN(const GenerationConfig generation,
                   LoadGenerationConfig(engine.GenerationConfigFolder()));
  // With --tokenizer, the processor files in the model's own folder still determine how images are
  // processed.
  ServerConfig config = server;
  config.media.model_folder = engine.model_folder.string();
  return ModelText::Load(config, model.tokenizer_folder, described.vocab_size, generation);
}

Result<std::vector<int32_t>> ClassifierTokenIds(const EngineConfig& engine, const ModelText& text) {
  ASSIGN_OR_RETURN(const ModelConfig described,
                   LoadModelConfig(engine.model_folder, engine.config_overrides));
  ASSIGN_OR_RETURN(const std::vector<std::string> tokens, ClassifierTokens(described.raw));
  std::vector<int32_t> ids;
  for (const std::string& token : tokens) {
    const std::optional<int32_t> id = text.tokenizer->TokenToId(token);
    if (!id) {
      return Fail(
          ErrorCode::kInvalidData,
          fmt::format("classifier_from_token: '{}' is not a token of the vocabulary", token),
          "classifier_from_token");
    }
    ids.push_back(*id);
  }
  return ids;
}

class Serving::DigestThread {
 public:
  DigestThread(std::filesystem::path folder, std::function<void(const Result<std::string>&)> done)
      : thread_(StartThread("digest", [this, folder = std::move(folder), done = std::move(done)] {
          digest_ = CatchToResult([&] { return WeightsDigest(folder, &stop_); });
          if (done && !stop_) done(digest_);
        })) {}
  ~DigestThread() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  const Result<std::string>& Wait() {
    if (thread_.joinable()) thread_.join();
    return digest_;
  }

 private:
  std::atomic<bool> stop_{false};
  Result<std::string> digest_ =
      Fail(ErrorCode::kInternal, "computing the hash of the weights failed");
  std::thread thread_;
};

Serving::Serving() = default;

void Serving::Record(std::unique_ptr<recording::FlightRecorder> recorder) {
  recorder_ = std::move(recorder);
}

Result<std::unique_ptr<Serving>> Serving::Bind(ServerConfig config) {
  auto serving = std::make_unique<Serving>();
  serving->config_ = config;
  ASSIGN_OR_RETURN(serving->server_, Server::Create(std::move(config)));
  return serving;
}

// The server's threads end first, because they call the engine. The engine ends before the server,
// because it reports to the server's observer.
Serving::~Serving() {
  if (server_) {
    server_->Stop();
    server_->Run();  // returns immediately, after joining the server's threads
  }
  engine_.reset();
}

Status Serving::Check(ServerConfig config, const EngineConfig& engine, const ModelArgument& model) {
  // Makes Bind() bind the port without listening.
  config.listen_when_ready = true;
  ASSIGN_OR_RETURN(const std::unique_ptr<Serving> serving, Bind(config));
  ASSIGN_OR_RETURN(const ModelText text, LoadText(config, engine, model));
  RETURN_IF_ERROR(ClassifierTokenIds(engine, text));
  Engine::Hooks hooks;
  hooks.print_plan = [](const std::string& line) { fmt::print("{}\n", line); };
  RETURN_IF_ERROR(Engine::Check(engine, hooks));
  if (engine.dummy_weights) return {};
  const auto checkpoint = Checkpoint::Open(engine.model_folder);
  if (checkpoint) return {};
  std::error_code ignored;
  if (std::filesystem::is_directory(model.as_given, ignored))
    return tl::unexpected(checkpoint.error());
  fmt::print("the weights of {} are not on this machine yet: they are downloaded at the start\n",
             model.name);
  return {};
}

Status Serving::Load(EngineConfig config, const ModelArgument& model, LoadReport report,
                     const ProcessRanks* processes) {
  ASSIGN_OR_RETURN(ModelText text, LoadText(config_, config, model));
  ASSIGN_OR_RETURN(config.pooling.classifier_tokens, ClassifierTokenIds(config, text));
  ProgressBar bar("loading");
  if (recorder_ != nullptr || receipts_) {
    digest_ = std::make_unique<DigestThread>(
        config.model_folder, [recorder = recorder_.get()](const Result<std::string>& digest) {
          if (recorder == nullptr) return;
          json::Value facts{json::Value::Object{}};
          facts.Set("weights", digest ? json::Value(*digest) : json::Value());
          recorder->AddFacts(facts);
        });
  }
  Engine::Hooks hooks;
  if (recorder_ != nullptr) {
    hooks.journal_of = [this](int engine) { return recorder_->journal(engine); };
    text.on_arrival = [this](std::string_view path, std::string_view body) {
      recorder_->OnArrival(path, body);
    };
  }
  hooks.observer_of = [this](int engine) { return server_->observer(engine); };
  hooks.processes = processes;
  if (cache_events_) {
    hooks.listener_of = [this](int64_t rank) -> Result<std::unique_ptr<CacheListener>> {
      return CacheEventPublisher::Start(*cache_events_, rank);
    };
    if (!config.enable_prefix_caching) {
      LOG_WARNING("events",
                  "--kv-events-config: without --enable-prefix-caching there are no "
                  "cache events");
    }
  }
  if (report != LoadReport::kNowhere) {
    hooks.load_progress = [&bar](int64_t done, int64_t total) { bar.Update(done, total); };
  }
  if (report == LoadReport::kTerminal || report == LoadReport::kLog) {
    hooks.print_plan = [report](const std::string& line) {
      if (report == LoadReport::kLog) {
        LOG_INFO("memory", "{}", line);
      } else {
        PrintErrorOrDrop(line + "\n");
      }
    };
  }
  auto engine = Engine::Create(config, std::move(hooks));
  bar.Finish();
  if (!engine) return tl::unexpected<Error>(std::move(engine).error());
  engine_ = *std::move(engine);
  if (receipts_) {
    const Result<std::string>& digest = digest_->Wait();
    if (!digest) return tl::unexpected(Error(digest.error()).In("--receipts"));
    text.receipts = std::make_shared<const ReceiptIssuer>(
        ReceiptIssuer{.key = receipts_->key,
                      .with_tokens = receipts_->with_tokens,
                      .program = fmt::format("sluice {}", Version()),
                      .weights = *digest,
                      .profile = receipts_->profile(engine_->info())});
  }
  return server_->Attach(engine_.get(), std::move(text));
}

}  // namespace sluice::cli
