// Fuzz target: parses arbitrary JSON as an adapter_config.json. Accepted configurations have finite
// scales.
#include <cmath>

#include "base/fuzz_input.h"
#include "models/lora_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const auto json = json::Parse(fuzz::Text(data, size));
  if (!json) return 0;
  const auto config = ParseLoraConfig(*json);
  if (!config) {
    fuzz::Require(!config.error().message.empty());
    return 0;
  }
  fuzz::Require(config->rank > 0);
  for (const char* module : {"model.layers.0.self_attn.q_proj", "lm_head", ""}) {
    const int64_t rank = config->RankOf(module);
    fuzz::Require(rank > 0);
    fuzz::Require(std::isfinite(config->ScaleOf(module, rank)));
  }
  return 0;
}
