// Reads --speculative-config and its shorter spellings.
#pragma once

#include "base/result.h"
#include "options/settings.h"
#include "speculation/speculation_config.h"

namespace sluice::cli {

// Reads the keys of vLLM and of trtllm-serve. A method that this program does not have is
// logged, and nothing is speculated: the answers are the same. kInvalidArgument names
// the key that is wrong.
Result<SpeculationConfig> SpeculationOf(const options::Settings& settings);

}  // namespace sluice::cli
