// Facts that ranks compare before they load a model together.
#pragma once

#include <vector>

#include "base/result.h"
#include "engine/engine_config.h"
#include "parallel/handshake.h"

namespace sluice::cli {

// Returns the model's config.json, the headers of its files, the kernels' instruction set, and a
// description of how this machine computes. Selects the instruction set. Errors: kNotFound and
// kInvalidData from reading the files.
Result<std::vector<Fact>> ModelFacts(const EngineConfig& config);

}  // namespace sluice::cli
