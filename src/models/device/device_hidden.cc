// Hidden rows on a device: the rows that a decoder passes to a drafting head, and the rows that the
// head reads.
#include "base/check.h"
#include "models/device/device_decoder.h"
#include "models/device/device_walk.h"

namespace sluice {

void DeviceWalk::operator()(const program::HandRows& op) {
  const program::Buffer& to = program_.buffers[static_cast<size_t>(op.to)];
  const int64_t part_bytes = program_.limits.Of(to.extent) * op.width * 4;
  std::byte* const memory = executor_.BufferAt(op.to) + op.begin / op.width * part_bytes;
  parts_.stream.CopyOnDevice(memory, At(op.x, op.width * 4), rows_ * op.width * 4);
}

void DeviceWalk::operator()(const program::TakeHidden& op) {
  const int64_t parts = op.width / op.part_width;
  const int64_t row_bytes = op.part_width * 4;
  const bool is_f32 = op.type == ElementType::kF32;
  CHECK(parts == 1 || !is_f32, "rows of several parts are joined for a product");
  std::byte* const pieces = is_f32 ? At(op.out, 0) : At(op.pieces, 0);
  for (int64_t part = 0; part < parts; ++part) {
    kernels_.take_rows(handle_,
                       {.in = step_.hidden.rows + part * step_.hidden.stride * op.part_width,
                        .indices = step_.inputs->hidden_rows(),
                        .rows = rows_,
                        .row_bytes = row_bytes,
                        .out = pieces + part * rows_ * row_bytes});
  }
  if (is_f32) return;
  std::byte* x = pieces;
  if (parts > 1) {
    CHECK_LE(parts, device::kMostJoinedPieces);
    x = At(op.joined, 0);
    device::JoinColumnsArgs join = {
        .in = pieces, .rows = rows_, .num_pieces = static_cast<int>(parts), .ends = {}, .out = x};
    for (int64_t part = 0; part < parts; ++part) join.ends[part] = (part + 1) * row_bytes;
    kernels_.join_columns(handle_, join);
  }
  kernels_.convert_rows(
      handle_, {.x = x,
                .x_type = ElementType::kF32,
                .rows = rows_,
                .cols = op.width,
                .out = RowsOutAt(op.out, op.scales, op.width, weights_.InputsOf(op.reader))});
}

void DeviceWalk::operator()(const program::JoinNorms& op) {
  const int64_t row_bytes = op.width * 2;
  std::byte* const pieces = At(op.pieces, 0);
  const auto norm = [&](BufferId from, program::VectorId weight, std::byte* to) {
    kernels_.rms_norm(handle_, {.residual = RowsAt<float>(from, op.width),
                                .delta = nullptr,
                                .delta_type = ElementType::kF32,
                                .weight = Vector(weight),
                                .eps = program_.norm_eps,
                                .rows = rows_,
                                .cols = op.width,
                                .out = {.data = to},
                                .out_f32 = nullptr});
  };
  norm(op.x, op.x_weight, pieces);
  norm(op.y, op.y_weight, pieces + rows_ * row_bytes);
  kernels_.join_columns(handle_, {.in = pieces,
                                  .rows = rows_,
                                  .num_pieces = 2,
                                  .ends = {row_bytes, 2 * row_bytes},
                                  .out = At(op.out, 0)});
}

DeviceHidden DeviceDecoder::handed_rows() {
  const program::Program& program = parts_.executor->program();
  const bool is_head = options_.drafter != nullptr;
  if (is_head ? options_.drafter->drafts_blocks() : !options_.handed.any()) return {};
  return {.rows = reinterpret_cast<float*>(parts_.executor->BufferAt(program::kHandedRows)),
          .stride = is_head ? program.limits.wanted : program.limits.rows};
}

DeviceHidden DeviceDecoder::kept_rows() {
  if (options_.kept_rows == 0) return {};
  return {.rows = reinterpret_cast<float*>(parts_.executor->BufferAt(kKeptRows)),
          .stride = options_.kept_rows};
}

void DeviceDecoder::KeepRows(const DeviceHidden& from, int64_t first, int64_t count,
                             int64_t place) {
  const DeviceHidden to = kept_rows();
  CHECK_LE(place + count, to.stride);
  const int64_t width = options_.drafter->target_hidden_size;
  for (int64_t part = 0; part < options_.drafter->takes.NumParts(); ++part) {
    parts_.stream->CopyOnDevice(to.rows + (part * to.stride + place) * width,
                                from.rows + (part * from.stride + first) * width,
                                count * width * int64_t{sizeof(float)});
  }
}

}  // namespace sluice
