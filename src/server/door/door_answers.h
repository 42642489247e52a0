// Answers about all models of a server with several models.
#pragma once

#include <string>
#include <vector>

#include "server/api/common/model_card.h"
#include "server/door/model_slots.h"
#include "server/http/http_types.h"

namespace sluice {

// Returns the cards of a model and of its adapters. Each card contains the model's state:
//
//     "status":{"value":"loading","progress":0.25,"pinned":false,...}
std::vector<ModelCard> DoorCards(const ModelFacts& facts, int64_t created);

// Whether the server serves all requests, has begun to leave (/ready fails), or drains. Passed to
// the functions that return the answers of /health and /ready. `is_ready`: each pinned model is
// loaded or has failed.
enum class DoorPhase { kServing, kLeaving, kDraining };
HttpResponse DoorHealth(const std::vector<ModelFacts>& models, bool is_ready, DoorPhase phase);
HttpResponse DoorReadiness(const std::vector<ModelFacts>& models, bool is_ready, DoorPhase phase);

// Returns the text of /metrics: `front` (process and HTTP), each model, and the loading of models.
std::string DoorMetrics(const Metrics& front, const std::vector<ModelFacts>& models,
                        int64_t budget_bytes);

}  // namespace sluice
