// Image operators on a device: operators that write rows of images into a decoder's rows, and
// operators of towers.
#include "base/check.h"
#include "models/device/device_walk.h"

namespace sluice {

void DeviceWalk::PlaceImageRows(BufferId x, int64_t width, int64_t level, bool adds) {
  const DeviceImageRows images = step_.inputs->image_rows();
  if (images.count == 0) return;
  const auto* const values = reinterpret_cast<const float*>(executor_.BufferAt(kImageRows));
  kernels_.place_rows(handle_, {.values = values + level * width,
                                .value_stride = parts_.image_row_width,
                                .places = images.places,
                                .rows = images.rows,
                                .count = images.count,
                                .cols = width,
                                .x = RowsAt<float>(x, width),
                                .adds = adds});
}

void DeviceWalk::operator()(const program::PlaceImages& op) {
  PlaceImageRows(op.x, op.width, 0, /*adds=*/false);
}

void DeviceWalk::operator()(const program::AddImages& op) {
  PlaceImageRows(op.x, op.width, op.level + 1, /*adds=*/true);
}

void DeviceWalk::operator()(const program::CopyColumns& op) {
  const program::Columns &from = op.from, &to = op.to;
  CHECK(from.begin == 0 && to.begin == 0 && from.rows_before == 0 && to.rows_before == 0 &&
            from.stride == op.width && to.stride == op.width,
        "devices copy whole rows");
  parts_.stream.CopyOnDevice(At(to.buffer, op.width * 4), At(from.buffer, op.width * 4),
                             rows_ * op.width * 4);
}

void DeviceWalk::operator()(const program::Regroup& op) {
  rows_ = (step_.rows - op.drops) / op.group;
}

void DeviceWalk::operator()(const program::MergePatches& op) {
  const bool by_number = op.kind == program::MergePatches::Kind::kByNumber;
  kernels_.merge_patches(handle_,
                         {.x = RowsAt<float>(op.x, op.width * op.group),
                          .rows = rows_,
                          .group = op.group,
                          .cols = op.width,
                          .out = RowsAt<float>(op.out, by_number ? op.width * op.group : op.width),
                          .by_number = by_number});
}

void DeviceWalk::operator()(const program::Standardize& op) {
  kernels_.standardize(handle_, {.x = RowsAt<float>(op.x, op.width),
                                 .bias = Vector(op.bias),
                                 .factor = Vector(op.factor),
                                 .rows = rows_,
                                 .cols = op.width});
}

void DeviceWalk::operator()(const program::StoreImage& op) {
  const DeviceImageRows targets = step_.inputs->image_rows();
  if (targets.count == 0) return;
  kernels_.place_rows(handle_, {.values = RowsAt<float>(op.x, op.width),
                                .value_stride = op.width,
                                .places = targets.places,
                                .rows = targets.rows,
                                .count = targets.count,
                                .cols = op.width,
                                .x = step_.image_rows + op.begin,
                                .adds = false,
                                .x_stride = step_.image_stride});
}

}  // namespace sluice
