// Fuzz target: reads arbitrary bytes as a file of prompts, both as ShareGPT's JSON and as JSON
// lines.
#include "base/fuzz_input.h"
#include "bench/dataset.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  bench::DatasetOptions options;
  options.kind = bench::DatasetOptions::Kind::kCustom;
  options.num_prompts = 4;
  options.path = fuzz::File(".jsonl", fuzz::Text(data, size));
  const auto dataset = bench::MakeDataset(options, nullptr);
  fuzz::Require(dataset.has_value() || !dataset.error().message.empty());
  return 0;
}
