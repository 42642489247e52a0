// The program of a model, for `sluice inspect --program`.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "models/model.h"
#include "models/model_config.h"
#include "models/shard.h"

namespace sluice {

// What the rank at `place` computes on a CPU, with these options, as text or as JSON: an operator a
// line or an object. Weights count as config.json says that they are stored.
Result<std::string> ProgramText(const ModelConfig& config, const ModelOptions& options,
                                const RankPlace& place);
Result<json::Value> ProgramJson(const ModelConfig& config, const ModelOptions& options,
                                const RankPlace& place);

}  // namespace sluice
