// Reads scales that are single numbers.
#pragma once

#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace sluice {

// Returns the value of a float scalar ([] or [1]) or, if `count` is not 0, element `index` of a
// tensor [count]. An error if the scale is not finite and positive.
Result<float> ReadScaleScalar(const StoredTensor& tensor, int64_t count = 0, int64_t index = 0);

}  // namespace sluice
