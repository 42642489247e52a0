// GET /health_generate: trtllm-serve's check that the engine can generate a token.
#include "server/api/answer/generation.h"
#include "server/api/context/route_table.h"

namespace sluice {
namespace {

// Answers whether a token was generated, but not which one.
class HealthWriter : public AnswerWriter {
 public:
  explicit HealthWriter(std::shared_ptr<ResponseWriter> client) : client_(std::move(client)) {}
  void Write(AnswerStep step) override {
    for (const AnswerEvent& event : step) {
      if (std::holds_alternative<UsageEvent>(event))
        client_->Send(TextResponse("Generation health check OK"));
      if (const auto* failed = std::get_if<ErrorEvent>(&event))
        client_->Send(
            TextResponse("Generation health check failed: " + failed->error.message, 500));
    }
  }

 private:
  const std::shared_ptr<ResponseWriter> client_;
};

ApiStatus HealthGenerate(const RouteCall& call) {
  GenerationRequest generation;
  generation.id = "health-" + RandomHex(16);
  generation.prompts.resize(1);
  generation.prompts[0].tokens = {0};
  generation.sampling.resize(1);
  generation.sampling[0].temperature = 0;
  generation.sampling[0].max_tokens = 1;
  Generation::Start(call.model, &call.api.pool, call.api.active, call.client, std::move(generation),
                    std::make_unique<HealthWriter>(call.client));
  return {};
}

}  // namespace

std::vector<Route> HealthGenerateRoutes() {
  return {OnWorker("/health_generate", {"GET"}, RouteGate::kTrtllm, HealthGenerate,
                   "Computes one token.", "text")};
}

}  // namespace sluice
