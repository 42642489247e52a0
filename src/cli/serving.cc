#include "cli/serving.h"

#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "checkpoint/generation_config.h"
#include "cli/progress.h"
#include "models/model_config.h"
#include "models/model_task.h"
#include "server/model_text.h"

namespace sluice::cli {

namespace {

// What is small and may be wrong is read before what is large.
Result<ModelText> LoadText(const ServerConfig& server, const EngineConfig& engine,
                           const ModelArgument& model) {
  ASSIGN_OR_RETURN(const ModelConfig described,
                   LoadModelConfig(engine.model_folder, engine.config_overrides));
  ASSIGN_OR_RETURN(const GenerationConfig generation,
                   LoadGenerationConfig(engine.GenerationConfigFolder()));
  return ModelText::Load(server, model.tokenizer_folder, described.vocab_size, generation);
}

// The ids of the tokens that a classifier is made of.
Result<std::vector<int32_t>> ClassifierTokenIds(const EngineConfig& engine, const ModelText& text) {
  ASSIGN_OR_RETURN(const ModelConfig described,
                   LoadModelConfig(engine.model_folder, engine.config_overrides));
  ASSIGN_OR_RETURN(const std::vector<std::string> tokens, ClassifierTokens(described.raw));
  std::vector<int32_t> ids;
  for (const std::string& token : tokens) {
    const std::optional<int32_t> id = text.tokenizer->TokenToId(token);
    if (!id) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("classifier_from_token: '{}' is no token of the vocabulary", token),
                  "classifier_from_token");
    }
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace

Result<std::unique_ptr<Serving>> Serving::Bind(ServerConfig config) {
  auto serving = std::make_unique<Serving>();
  serving->config_ = config;
  ASSIGN_OR_RETURN(serving->server_, Server::Create(std::move(config)));
  return serving;
}

// The server's threads end first, since they call the engine; then the engine, since it reports to
// the server's observer.
Serving::~Serving() {
  if (server_) {
    server_->Stop();
    server_->Run();  // returns at once, its threads joined
  }
  engine_.reset();
}

Status Serving::Load(EngineConfig config, const ModelArgument& model, LoadReport report,
                     const ProcessRanks* processes) {
  ASSIGN_OR_RETURN(ModelText text, LoadText(config_, config, model));
  ASSIGN_OR_RETURN(config.pooling.classifier_tokens, ClassifierTokenIds(config, text));
  ProgressBar bar("loading");
  Engine::Hooks hooks;
  hooks.observer_of = [this](int engine) { return server_->observer(engine); };
  hooks.processes = processes;
  if (report != LoadReport::kNowhere) {
    hooks.print_plan = [report](const std::string& line) {
      if (report == LoadReport::kLog) {
        LOG_INFO("memory", "{}", line);
      } else {
        PrintErrorOrDrop(line + "\n");
      }
    };
    hooks.load_progress = [&bar](int64_t done, int64_t total) { bar.Update(done, total); };
  }
  auto engine = Engine::Create(config, std::move(hooks));
  bar.Finish();
  if (!engine) return tl::unexpected<Error>(std::move(engine).error());
  engine_ = *std::move(engine);
  server_->Attach(engine_.get(), std::move(text));
  return {};
}

}  // namespace sluice::cli
