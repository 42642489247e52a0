// Reads the CUDA graph options of vLLM and trtllm-serve.
#pragma once

#include "base/result.h"
#include "engine/engine_config.h"
#include "options/settings.h"

namespace sluice::cli {

// Precedence: --enforce-eager, --cuda-graphs, cudagraph_mode of --compilation-config; if none is
// given, graphs are used if sizes are given, and by default under the names vllm and trtllm-serve,
// whose default they are, in a program `built_for_gpus` that may use one (is_default).
// kInvalidArgument names the invalid option.
Result<GraphConfig> GraphsOf(const options::Settings& settings, bool built_for_gpus);

}  // namespace sluice::cli
