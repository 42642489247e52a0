// Fuzz target: parses any bytes as a file of tactics. A damaged file makes an empty cache, and
// saving repairs it.
#include "base/fuzz_input.h"
#include "kernels/cuda/tactic_cache.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const auto file = fuzz::File(".json", fuzz::Text(data, size));
  const device::TacticOwner owner{"NVIDIA H200", 90, 130000};
  device::TacticCache cache(file, owner);
  const size_t before = cache.size();
  fuzz::Require(before <= device::TacticCache::kMaxTactics);
  cache.Put("a product", device::Tactic{});
  cache.Put("a choice", device::Tactic{.way = "own kernels"});
  fuzz::Require(cache.Save().has_value());
  const device::TacticCache again(file, owner);
  fuzz::Require(again.size() == cache.size());
  return 0;
}
