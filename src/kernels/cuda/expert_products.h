// Splits a grouped product: each expert's rows become a dense product, which the vendor's library
// may compute. Used for steps in which experts have many rows.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/device_linear.h"

namespace sluice::device {

// Minimum average number of rows per expert for a split.
constexpr int64_t kManyExpertRows = 64;

// Returns the product of `rows` rows, from row `first` on, with expert `expert`.
LinearArgs ExpertProduct(const GroupedLinearArgs& args, int64_t expert, int64_t first,
                         int64_t rows);

// Returns whether splitting is worth copying the experts' row counts to the host. True if there are
// many rows and the library was measured to be faster for the products.
bool IsWorthTakingApart(DeviceLinear& linear, const GroupedLinearArgs& args);

// Runs the products of all experts that have rows. `row_begin`: a host copy of args.row_begin.
// Scratch: DeviceLinear::ScratchBytes for the rows of all experts together.
void RunExperts(DeviceLinear& linear, DeviceStream& stream, const GroupedLinearArgs& args,
                std::span<const int32_t> row_begin);

}  // namespace sluice::device
