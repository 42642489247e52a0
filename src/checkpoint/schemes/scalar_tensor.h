// Scales that are single numbers.
#pragma once

#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace sluice {

// The value of a float scalar ([] or [1]); of a tensor of one number for each of `count` things
// (where count is not 0), number `index`. A scale that is not finite or not above 0 is refused.
Result<float> ReadScaleScalar(const StoredTensor& tensor, int64_t count = 0, int64_t index = 0);

}  // namespace sluice
