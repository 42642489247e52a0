// Reads a tensor that torch.save has written.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

struct TorchTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;  // row-major
};

inline constexpr std::string_view kTooManyValues = "too many values";

// Returns the tensor in `file`: an uncompressed zip archive with a pickle that builds one dense
// tensor of float32, float16 or bfloat16. The pickle is not executed: only the few opcodes that
// torch.save writes for such a tensor are interpreted, and all others are rejected. So no input can
// make this program do anything except copy numbers. Uses memory for at most `most_values` numbers.
//
// kInvalidArgument states what was expected and what was found. Its param is kTooManyValues if the
// tensor has more than `most_values` elements.
Result<TorchTensor> ReadTorchTensor(std::string_view file, int64_t most_values);

}  // namespace sluice
