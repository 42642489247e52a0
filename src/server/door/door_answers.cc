#include "server/door/door_answers.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "base/json.h"
#include "engine/adapters.h"
#include "server/api/common/api_error.h"
#include "server/metrics_text.h"

namespace sluice {
namespace {

bool IsOnItsWay(ModelState state) {
  return state == ModelState::kPlanning || state == ModelState::kQueued ||
         state == ModelState::kLoading;
}

std::string StatusField(const ModelFacts& facts) {
  const bool downloads = facts.state == ModelState::kPlanning && facts.total_bytes > 0;
  std::string out = fmt::format(R"(,"status":{{"value":"{}","pinned":{},"priority":{})",
                                downloads ? "downloading" : ModelStateName(facts.state),
                                facts.model->is_pinned, facts.model->priority);
  if (facts.total_bytes > 0 && (downloads || facts.state == ModelState::kLoading)) {
    out += fmt::format(R"(,"progress":{:.3f})", static_cast<double>(facts.done_bytes) /
                                                    static_cast<double>(facts.total_bytes));
  }
  if (facts.bytes > 0) out += fmt::format(R"(,"memory_bytes":{})", facts.bytes);
  out += fmt::format(R"(,"running_requests":{},"waiting_requests":{})", facts.in_flight,
                     facts.waiting);
  if (!facts.error.empty()) {
    out += R"(,"failed":true,"error":)";
    json::AppendString(out, facts.error);
  }
  return out + "}";
}

// Number of models in each state, and the names of loaded ones whose engine has failed.
struct Tally {
  int64_t loaded = 0, loading = 0, failed = 0, unloaded = 0;
  std::vector<std::string> lost;
  int64_t done_bytes = 0, total_bytes = 0;
};

Tally Count(const std::vector<ModelFacts>& models) {
  Tally tally;
  for (const ModelFacts& facts : models) {
    if (facts.state == ModelState::kLoaded) {
      ++tally.loaded;
      if (facts.context != nullptr && !facts.context->engine->healthy())
        tally.lost.push_back(facts.model->name);
    } else if (IsOnItsWay(facts.state)) {
      ++tally.loading;
      tally.done_bytes += facts.done_bytes;
      tally.total_bytes += facts.total_bytes;
    } else if (facts.state == ModelState::kFailed) {
      ++tally.failed;
    } else {
      ++tally.unloaded;
    }
  }
  return tally;
}

// Shows only counts, because these routes are open and the names of models require an API key.
HttpResponse StatusAnswer(const Tally& tally, std::string_view status, bool is_good) {
  std::string body = fmt::format(
      R"({{"status":"{}","models":{{"loaded":{},"loading":{},"failed":{},"unloaded":{}}})", status,
      tally.loaded, tally.loading, tally.failed, tally.unloaded);
  if (tally.total_bytes > 0) {
    body +=
        fmt::format(R"(,"loaded_bytes":{},"load_bytes":{})", tally.done_bytes, tally.total_bytes);
  }
  HttpResponse response = JsonResponse(body + "}");
  if (!is_good) response.status = 503;
  return response;
}

}  // namespace

std::vector<ModelCard> DoorCards(const ModelFacts& facts, int64_t created) {
  std::vector<ModelCard> cards;
  if (facts.context != nullptr) {
    cards = CardsOf(*facts.context);
    for (ModelCard& card : AdapterCardsOf(*facts.context)) cards.push_back(std::move(card));
  } else {
    ModelCard card;
    card.root = facts.model->config.model_argument;
    card.created = created;
    card.has_chat = facts.has_chat;
    card.calls_tools = facts.calls_tools;
    for (const std::string& adapter : facts.model->adapters) {
      ModelCard& added = cards.emplace_back(card);
      added.name = adapter;
      added.parent = facts.model->name;
    }
    card.name = facts.model->name;
    card.max_model_len = facts.max_model_len;
    cards.insert(cards.begin(), card);
  }
  const std::string status = StatusField(facts);
  for (ModelCard& card : cards) card.more = status;
  return cards;
}

HttpResponse DoorHealth(const std::vector<ModelFacts>& models, bool is_ready, DoorPhase phase) {
  const Tally tally = Count(models);
  if (phase == DoorPhase::kDraining) return StatusAnswer(tally, "draining", false);
  if (!is_ready) return StatusAnswer(tally, "loading", false);
  // Answers 200 even if a model has failed: other models are served, and a restart would abort
  // their requests.
  const bool is_good = tally.lost.empty() && tally.failed == 0;
  return StatusAnswer(tally, is_good ? "ok" : "degraded", true);
}

HttpResponse DoorReadiness(const std::vector<ModelFacts>& models, bool is_ready, DoorPhase phase) {
  const Tally tally = Count(models);
  if (phase != DoorPhase::kServing) return StatusAnswer(tally, "draining", false);
  return StatusAnswer(tally, is_ready ? "ready" : "loading", is_ready);
}

std::string DoorMetrics(const Metrics& front, const std::vector<ModelFacts>& models,
                        int64_t budget_bytes) {
  std::vector<std::string> texts;
  CacheEventCounts events;
  for (const ModelFacts& facts : models) {
    if (facts.context == nullptr) {
      texts.push_back(facts.metrics->ModelText(/*idle=*/true));
      continue;
    }
    const Engine& engine = *facts.context->engine;
    const CacheEventCounts counts = engine.cache_event_counts();
    events.published += counts.published;
    events.dropped += counts.dropped;
    events.missed += counts.missed;
    texts.push_back(facts.metrics->ModelText(engine.num_unfinished() == 0, engine.states(),
                                             facts.context->engine->adapters()));
  }
  texts.insert(texts.begin(), front.Text(/*idle=*/true, {}, nullptr, events));

  MetricsText out;
  const auto each = [&](const std::string& name, std::string_view type, std::string_view help,
                        const std::function<double(const ModelFacts&)>& value) {
    out.Family(name, type, help);
    for (const ModelFacts& facts : models) {
      out.Sample(name, fmt::format("model_name=\"{}\"", EscapeLabel(facts.model->name)),
                 value(facts));
    }
  };
  const auto number = [](auto value) { return static_cast<double>(value); };
  out.Gauge("sluice:models_memory_bytes", "", number(budget_bytes),
            "Limit of the total memory of loaded models (--models-memory).");
  each("sluice:model_loaded", "gauge", "Whether the model is loaded.",
       [](const ModelFacts& facts) { return facts.state == ModelState::kLoaded ? 1.0 : 0.0; });
  each("sluice:model_memory_bytes", "gauge",
       "Memory that the model uses, counted against --models-memory.",
       [&](const ModelFacts& facts) { return number(facts.bytes); });
  each("sluice:model_waiting_requests", "gauge", "Requests that wait for the model to be loaded.",
       [&](const ModelFacts& facts) { return number(facts.waiting); });
  each("sluice:model_loads_total", "counter", "Number of times that the model was loaded.",
       [&](const ModelFacts& facts) { return number(facts.num_loads); });
  each("sluice:model_load_failures_total", "counter",
       "Number of times that the model could not be loaded.",
       [&](const ModelFacts& facts) { return number(facts.num_failures); });
  each("sluice:model_unloads_total", "counter",
       "Number of times that the model was unloaded to free memory.",
       [&](const ModelFacts& facts) { return number(facts.num_put_out); });
  texts.push_back(out.Take());
  return MergeMetrics(texts);
}

}  // namespace sluice
