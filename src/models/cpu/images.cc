// Image operators: those of towers, which compute on patches, and those that insert rows of images
// into a decoder.
#include <algorithm>

#include "base/check.h"
#include "models/cpu/walk.h"
#include "models/tower/tower_step.h"
#include "tensor/bfloat16.h"

namespace sluice {
namespace {

constexpr int64_t kPatchGrain = 4;

// Copies the elements of the step's patch `index` to `out`, in the order that the tower's first
// matrix product expects.
void CopyPatch(const TowerStep& step, int64_t index, int64_t width, float* out) {
  if (!step.is_pixels) {
    const float* const from =
        step.values + int64_t{step.sources[static_cast<size_t>(index)]} * width;
    std::copy_n(from, width, out);
    return;
  }
  const int64_t side = step.patch;
  const int64_t top = step.patch_rows[static_cast<size_t>(index)] * side;
  const int64_t left = step.patch_cols[static_cast<size_t>(index)] * side;
  for (int64_t channel = 0; channel < width / (side * side); ++channel) {
    const float* const plane = step.values + channel * step.height * step.width;
    for (int64_t y = 0; y < side; ++y, out += side)
      std::copy_n(plane + (top + y) * step.width + left, side, out);
  }
}

}  // namespace

void CpuWalk::operator()(const program::PlaceImages& op) {
  float* const x = F32At(op.x, op.width);
  for (const ImageRow& image : step_.input.image_rows)
    std::copy_n(image.values, op.width, x + int64_t{image.row} * op.width);
}

void CpuWalk::operator()(const program::AddImages& op) {
  float* const x = F32At(op.x, op.width);
  const std::span<const ImageRow> images = step_.input.image_rows;
  pool_.ParallelFor(std::ssize(images), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const ImageRow& image = images[static_cast<size_t>(i)];
      const float* const values = image.values + (op.level + 1) * op.width;
      float* const row = x + int64_t{image.row} * op.width;
      for (int64_t k = 0; k < op.width; ++k) row[k] += values[k];
    }
  });
}

void CpuWalk::operator()(const program::TakePatches& op) {
  const TowerStep& step = *step_.tower;
  std::byte* const out = At(op.out, op.width * BitsPerElement(op.type) / 8);
  pool_.ParallelFor(rows_, kPatchGrain, [&](int64_t begin, int64_t end) {
    std::vector<float> patch(static_cast<size_t>(op.width));
    for (int64_t row = begin; row < end; ++row) {
      if (row < step.num_patches) {
        CopyPatch(step, row, op.width, patch.data());
        for (float& value : patch) value = (value - op.shift) * op.scale;
      } else {
        std::ranges::fill(patch, 0.0f);
      }
      if (op.type == ElementType::kF32) {
        std::ranges::copy(patch, reinterpret_cast<float*>(out) + row * op.width);
      } else {
        std::ranges::transform(patch, reinterpret_cast<BFloat16*>(out) + row * op.width,
                               [](float value) { return ToBFloat16(value); });
      }
    }
  });
}

void CpuWalk::operator()(const program::AddPositions& op) {
  const TowerStep& step = *step_.tower;
  float* const x = F32At(op.x, op.width);
  const float* const table = Vector(op.table);
  const float* const last = Vector(op.last);
  const int64_t num_rows = std::ssize(VectorOf(op.table)) / op.width;
  pool_.ParallelFor(rows_, kPatchGrain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* const out = x + row * op.width;
      std::vector<float> sum(static_cast<size_t>(op.width), 0.0f);
      const int64_t entries = step.position_entries;
      for (int64_t i = row * entries; i < (row + 1) * entries; ++i) {
        const float weight = step.position_weights[static_cast<size_t>(i)];
        const int64_t index = step.position_rows[static_cast<size_t>(i)];
        CHECK(index >= 0 && index < num_rows, "position {} of {}", index, num_rows);
        const float* const position = table + index * op.width;
        for (int64_t k = 0; k < op.width; ++k) sum[static_cast<size_t>(k)] += position[k] * weight;
      }
      if (last != nullptr && row == rows_ - 1) {
        std::copy_n(last, op.width, out);
      }
      for (int64_t k = 0; k < op.width; ++k) out[k] += sum[static_cast<size_t>(k)];
    }
  });
}

void CpuWalk::operator()(const program::Regroup& op) {
  rows_ = (step_rows_ - op.drops) / op.group;
}

void CpuWalk::operator()(const program::MergePatches& op) {
  const float* const x = F32At(op.x, op.width * op.group);
  const bool is_mean = op.kind == program::MergePatches::Kind::kMean;
  const int64_t out_width = is_mean ? op.width : op.width * op.group;
  float* const out = F32At(op.out, out_width);
  pool_.ParallelFor(rows_, kPatchGrain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* const pieces = x + row * op.width * op.group;
      float* const merged = out + row * out_width;
      for (int64_t k = 0; k < op.width; ++k) {
        float sum = 0;
        for (int64_t piece = 0; piece < op.group; ++piece) {
          const float value = pieces[piece * op.width + k];
          if (is_mean)
            sum += value;
          else
            merged[k * op.group + piece] = value;
        }
        if (is_mean) merged[k] = sum / static_cast<float>(op.group);
      }
    }
  });
}

void CpuWalk::operator()(const program::Clamp& op) {
  float* const x = F32At(op.x, op.width);
  const float low = VectorOf(op.bounds)[static_cast<size_t>(op.first)];
  const float high = VectorOf(op.bounds)[static_cast<size_t>(op.first) + 1];
  pool_.ParallelFor(CountOf(op.x) * op.width, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) x[i] = std::min(std::max(x[i], low), high);
  });
}

void CpuWalk::operator()(const program::Standardize& op) {
  float* const x = F32At(op.x, op.width);
  const float* const bias = Vector(op.bias);
  const float* const factor = Vector(op.factor);
  pool_.ParallelFor(rows_, kPatchGrain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* const out = x + row * op.width;
      for (int64_t k = 0; k < op.width; ++k) out[k] = (out[k] - bias[k]) * factor[k];
    }
  });
}

void CpuWalk::operator()(const program::StoreImage& op) {
  const TowerStep& step = *step_.tower;
  const float* const x = F32At(op.x, op.width);
  CHECK_EQ(rows_, std::ssize(step.targets));
  for (int64_t row = 0; row < rows_; ++row) {
    float* const target = step.targets[static_cast<size_t>(row)];
    if (target != nullptr) std::copy_n(x + row * op.width, op.width, target + op.begin);
  }
}

}  // namespace sluice
