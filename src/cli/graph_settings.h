// Reads the CUDA graph options of vLLM and trtllm-serve.
#pragma once

#include "base/result.h"
#include "engine/engine_config.h"
#include "options/settings.h"

namespace sluice::cli {

// Precedence: --enforce-eager, --cuda-graphs, cudagraph_mode of --compilation-config. If none is
// given, graphs are used if their sizes are given. Without sizes, graphs are on by default under
// the names vllm and trtllm-serve, as in those programs, if the program is `built_for_gpus` and may
// use a GPU. In this case `is_default` is set. kInvalidArgument names the invalid option.
Result<GraphConfig> GraphsOf(const options::Settings& settings, bool built_for_gpus);

}  // namespace sluice::cli
