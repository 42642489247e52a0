#include "cli/serving.h"

#include <utility>

#include "cli/progress.h"

namespace sluice::cli {

Result<std::unique_ptr<Serving>> Serving::Bind(ServerConfig config) {
  auto serving = std::make_unique<Serving>();
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

Status Serving::Load(const EngineConfig& config, const ModelArgument& model, bool quiet) {
  ProgressBar bar("loading");
  Engine::Hooks hooks;
  hooks.observer = server_->observer();
  if (!quiet) {
    hooks.print_plan = [](const std::string& line) { PrintErrorOrDrop(line + "\n"); };
    hooks.load_progress = [&bar](int64_t done, int64_t total) { bar.Update(done, total); };
  }
  auto engine = Engine::Create(config, std::move(hooks));
  bar.Finish();
  if (!engine) return tl::unexpected<Error>(std::move(engine).error());
  engine_ = *std::move(engine);
  return server_->Attach(engine_.get(), model.tokenizer_folder);
}

}  // namespace sluice::cli
