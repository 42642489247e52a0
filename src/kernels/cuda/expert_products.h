// Grouped products taken apart: each expert's rows as a dense product of its own, which the
// vendor's library may compute. For steps so large that experts have many rows.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/device_linear.h"

namespace sluice::device {

// So many rows an expert, on average, are many.
constexpr int64_t kManyExpertRows = 64;

// The product of `rows` rows, from row `first` on, with expert `expert`.
LinearArgs ExpertProduct(const GroupedLinearArgs& args, int64_t expert, int64_t first,
                         int64_t rows);

// Whether the experts' products are worth their counts' way to the host: with many rows, and where
// such products were measured to be faster by the library.
bool IsWorthTakingApart(DeviceLinear& linear, const GroupedLinearArgs& args);

// Runs the products of all experts that have rows. `row_begin`: what args.row_begin holds, on the
// host. Scratch as DeviceLinear::ScratchBytes says for as many rows as all experts have.
void RunExperts(DeviceLinear& linear, DeviceStream& stream, const GroupedLinearArgs& args,
                std::span<const int32_t> row_begin);

}  // namespace sluice::device
