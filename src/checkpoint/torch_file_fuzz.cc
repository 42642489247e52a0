// Fuzz target: reads arbitrary bytes as a file that torch.save wrote.
#include "base/fuzz_input.h"
#include "checkpoint/torch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int64_t kMost = 1 << 16;
  const auto tensor = sluice::ReadTorchTensor(sluice::fuzz::Text(data, size), kMost);
  if (!tensor) return 0;
  int64_t count = 1;
  for (const int64_t axis : tensor->shape) count *= axis;
  sluice::fuzz::Require(count <= kMost && count == static_cast<int64_t>(tensor->values.size()));
  return 0;
}
