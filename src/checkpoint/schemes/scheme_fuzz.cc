// Fuzz target: parses arbitrary bytes as a quantization configuration. The result must be an error,
// or a scheme that returns a format for every module.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "checkpoint/scheme.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config = sluice::json::Parse({reinterpret_cast<const char*>(data), size});
  if (!config) return 0;
  const auto scheme = sluice::ParseScheme(*config);
  if (!scheme) {
    if (scheme.error().message.empty()) std::abort();
    return 0;
  }
  for (const char* module : {"model.layers.0.self_attn.q_proj", "lm_head", ""}) {
    (*scheme)->PlannedFormat(module);
    (*scheme)->PlannedActivations(module);
  }
  if ((*scheme)->Name().empty()) std::abort();
  return 0;
}
