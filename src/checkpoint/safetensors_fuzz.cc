// Fuzz target: parses arbitrary bytes as a safetensors file. The tensors of an accepted file must
// cover it exactly.
#include <cstdint>
#include <span>

#include "base/check.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  if (const auto header = sluice::ParseSafetensorsHeader(bytes, size)) {
    uint64_t total = 0;
    for (const sluice::TensorInfo& tensor : header->tensors) {
      CHECK_LE(tensor.offset, size);
      CHECK_LE(tensor.size_bytes, size - tensor.offset);
      total += tensor.size_bytes;
    }
    CHECK_LE(total, size);
  }
  (void)sluice::ParseShardIndex({reinterpret_cast<const char*>(data), size});
  return 0;
}
