// Reads what options say of CUDA graphs, in the words of vLLM and of trtllm-serve.
#pragma once

#include "base/result.h"
#include "engine/engine_config.h"
#include "options/settings.h"

namespace sluice::cli {

// --enforce-eager goes before all, then --cuda-graphs, then cudagraph_mode of --compilation-config;
// where none of them is given, whether sizes are. kInvalidArgument names the option that is wrong.
Result<GraphConfig> GraphsOf(const options::Settings& settings);

}  // namespace sluice::cli
