#include "kernels/cuda/expert_products.h"

#include "base/check.h"
#include "kernels/cuda/addresses.h"

namespace sluice::device {
LinearArgs ExpertProduct(const GroupedLinearArgs& args, int64_t expert, int64_t first,
                         int64_t rows) {
  LinearArgs product = args.linear;
  Weights& w = product.w;
  w.codes = Behind(w.codes, expert * args.codes_stride);
  w.group_scales = Behind(w.group_scales, expert * args.group_scales_stride);
  if (w.row_scales != nullptr) w.row_scales += expert * args.row_scales_stride;
  // Clears values that describe the scales of the first expert, because they do not apply to other
  // experts.
  w.same_row_scale = 0;
  w.num_parts = 0;
  product.x = Behind(product.x, first * w.k * (product.x_type == ElementType::kF8E4M3 ? 1 : 2));
  if (product.x_scales != nullptr) product.x_scales += first;
  product.y =
      Behind(product.y, first * product.y_stride * (product.y_type == ElementType::kF32 ? 4 : 2));
  product.m = rows;
  return product;
}

bool IsWorthTakingApart(DeviceLinear& linear, const GroupedLinearArgs& args) {
  const int64_t mean = args.linear.m / args.num_experts;
  if (mean < kManyExpertRows || linear.library().empty()) return false;
  const LinearWay way = linear.Choose(ExpertProduct(args, 0, 0, mean));
  return way != LinearWay::kOwn && way != LinearWay::kGroups;
}

void RunExperts(DeviceLinear& linear, DeviceStream& stream, const GroupedLinearArgs& args,
                std::span<const int32_t> row_begin) {
  CHECK_EQ(std::ssize(row_begin), args.num_experts + 1);
  for (int64_t expert = 0; expert < args.num_experts; ++expert) {
    const int64_t first = row_begin[static_cast<size_t>(expert)];
    const int64_t rows = row_begin[static_cast<size_t>(expert) + 1] - first;
    CHECK(first >= 0 && rows >= 0 && first + rows <= args.linear.m, "rows of expert {}", expert);
    if (rows > 0) linear.Run(stream, ExpertProduct(args, expert, first, rows));
  }
}

}  // namespace sluice::device
