// Reads a tensor that torch.save wrote.
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

// The tensor in `file`: a zip archive whose parts are stored as they are, and whose pickle builds
// one dense tensor of float32, float16 or bfloat16. The pickle is not run: the few steps that
// torch.save writes for such a tensor are read, and everything else is refused, so that no bytes
// make this program do more than copy numbers. Takes memory for `most_values` numbers at most.
//
// kInvalidArgument says what was expected and what was found; its param is kTooManyValues for a
// tensor of more than `most_values`.
Result<TorchTensor> ReadTorchTensor(std::string_view file, int64_t most_values);

}  // namespace sluice
