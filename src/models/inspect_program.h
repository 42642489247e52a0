// Shows the program of a model, for `sluice inspect --program`.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "models/model.h"
#include "models/model_config.h"
#include "models/shard.h"

namespace sluice {

// Returns the program of the rank at `place` on a CPU with these options, as text (one line per
// operator) or as JSON (one object per operator). Sizes of weights assume the storage format in
// config.json.
Result<std::string> ProgramText(const ModelConfig& config, const ModelOptions& options,
                                const RankPlace& place);
Result<json::Value> ProgramJson(const ModelConfig& config, const ModelOptions& options,
                                const RankPlace& place);

}  // namespace sluice
