// The program of a model, for `sluice inspect --program`.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "models/model.h"
#include "models/model_config.h"
#include "models/shard.h"

namespace sluice {

// The program of the rank at `place` on a CPU, with these options, as text (one operator a line) or
// as JSON (one object each). Sizes of weights assume the storage format that config.json gives.
Result<std::string> ProgramText(const ModelConfig& config, const ModelOptions& options,
                                const RankPlace& place);
Result<json::Value> ProgramJson(const ModelConfig& config, const ModelOptions& options,
                                const RankPlace& place);

}  // namespace sluice
