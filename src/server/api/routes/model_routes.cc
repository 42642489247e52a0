// GET /v1/models and /v1/models/{model_id}.
#include <algorithm>

#include "server/api/common/model_card.h"
#include "server/api/context/route_table.h"

namespace sluice {
namespace {

constexpr std::string_view kModelsPrefix = "/v1/models/";

bool IsAnthropic(const RouteCall& call) {
  return call.request.Header("anthropic-version") != nullptr;
}

ApiStatus Models(const RouteCall& call) {
  API_RETURN_IF_ERROR(CheckModelIsLoaded(call));
  std::vector<ModelCard> cards = CardsOf(*call.model);
  for (ModelCard& card : AdapterCardsOf(*call.model)) cards.push_back(std::move(card));
  call.client->Send(JsonResponse(ModelList(cards, call.model->config.dialect, IsAnthropic(call))));
  return {};
}

ApiStatus OneModel(const RouteCall& call) {
  API_RETURN_IF_ERROR(CheckModelIsLoaded(call));
  const std::string name(call.path.substr(kModelsPrefix.size()));
  API_RETURN_IF_ERROR(call.model->CheckName(name));
  const std::vector<ModelCard> adapters = AdapterCardsOf(*call.model);
  const auto adapter = std::find_if(adapters.begin(), adapters.end(),
                                    [&](const ModelCard& card) { return card.name == name; });
  ModelCard card = adapter == adapters.end() ? CardsOf(*call.model).front() : *adapter;
  card.name = name;
  std::string body;
  AppendModelCard(body, card, call.model->config.dialect, IsAnthropic(call));
  call.client->Send(JsonResponse(std::move(body)));
  return {};
}

}  // namespace

std::vector<Route> ModelRoutes() {
  return {
      OnIoThread("/v1/models", {"GET"}, RouteGate::kAlways, Models,
                 "The names of the served models and adapters.", "ModelList"),
      OnIoThread("/v1/models/{model_id}", {"GET"}, RouteGate::kNotVllm, OneModel, "One of them.",
                 "ModelCard"),
  };
}

}  // namespace sluice
