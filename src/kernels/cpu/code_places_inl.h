// Returns addresses of the codes, and of the scales or zero points, of a panel's step.
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels {
namespace {

inline const uint8_t* CodesAt(const LinearArgs& args, int64_t panel, int64_t step,
                              int64_t step_bytes) {
  return static_cast<const uint8_t*>(args.w) + panel * args.panel_bytes + step * step_bytes;
}
inline const uint8_t* ScalesAt(const LinearArgs& args, int64_t panel, int64_t step) {
  if (args.scales == nullptr) return nullptr;
  return args.scales + panel * args.panel_scale_bytes + step * args.scale_step_bytes;
}

}  // namespace
}  // namespace sluice::kernels
