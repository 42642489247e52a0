#include "vision/resize.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "base/check.h"

namespace sluice {
namespace {

// Filter weights along one side: output i is the sum over j < counts[i] of weights[i * stride + j]
// times input starts[i] + j, rounded and shifted right by `precision` bits.
struct FilterTaps {
  int stride = 0;
  int precision = 0;
  std::vector<int> starts;
  std::vector<int> counts;
  std::vector<int16_t> weights;
};

// Adds 0.5 and truncates, as torch does.
int CutHalfUp(double x) {
  x += 0.5;
  return static_cast<int>(x);
}

double Sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double FilterAt(ResizeFilter filter, double x) {
  x = std::abs(x);
  if (filter == ResizeFilter::kBilinear) return x < 1.0 ? 1.0 - x : 0.0;
  if (filter == ResizeFilter::kLanczos) return x < 3.0 ? Sinc(x) * Sinc(x / 3.0) : 0.0;
  constexpr double kA = -0.5;
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1.0;
  if (x < 2.0) return ((kA * x - 5.0 * kA) * x + 8.0 * kA) * x - 4.0 * kA;
  return 0.0;
}

// Returns the largest precision for which `largest` still fits in 16 bits.
int PrecisionFor(double largest) {
  int precision = 0;
  for (; precision < 22; ++precision) {
    if (CutHalfUp(largest * (1 << (precision + 1))) >= (1 << 15)) break;
  }
  return precision;
}

int SizeOf(ResizeFilter filter) {
  switch (filter) {
    case ResizeFilter::kBilinear: return 2;
    case ResizeFilter::kBicubic: return 4;
    case ResizeFilter::kLanczos: break;
  }
  return 6;
}

// Computes only the weights of outputs [first, first + count_of); the precision is chosen as for
// all `to` outputs.
FilterTaps TapsOf(int from, int to, int first, int count_of, ResizeFilter filter) {
  const double scale = static_cast<double>(from) / to;
  const int filter_size = SizeOf(filter);
  const double support = scale >= 1.0 ? filter_size * 0.5 * scale : filter_size * 0.5;
  const double inverse = scale >= 1.0 ? 1.0 / scale : 1.0;
  FilterTaps taps;
  taps.stride = static_cast<int>(std::ceil(static_cast<float>(support))) * 2 + 1;
  std::vector<double> exact(static_cast<size_t>(count_of) * taps.stride, 0.0);
  std::vector<double> others(static_cast<size_t>(taps.stride));
  double largest = 0.0;
  for (int i = 0; i < to; ++i) {
    const bool is_wanted = i >= first && i < first + count_of;
    const double center = scale * (i + 0.5);
    const int start = std::max(CutHalfUp(center - support), 0);
    const int count =
        std::clamp(std::min(CutHalfUp(center + support), from) - start, 0, taps.stride);
    double* weights =
        is_wanted ? exact.data() + static_cast<size_t>(i - first) * taps.stride : others.data();
    double total = 0.0;
    for (int j = 0; j < count; ++j) {
      weights[j] = FilterAt(filter, (j + start - center + 0.5) * inverse);
      total += weights[j];
    }
    for (int j = 0; j < count && total != 0.0; ++j) weights[j] /= total;
    for (int j = 0; j < count; ++j) largest = std::max(largest, weights[j]);
    if (!is_wanted) continue;
    taps.starts.push_back(start);
    taps.counts.push_back(count);
  }
  taps.precision = PrecisionFor(largest);
  taps.weights.reserve(exact.size());
  for (double weight : exact) {
    const double scaled = weight * (1 << taps.precision);
    taps.weights.push_back(
        static_cast<int16_t>(static_cast<int>(scaled < 0 ? scaled - 0.5 : scaled + 0.5)));
  }
  return taps;
}

uint8_t ToByte(int32_t sum, int precision) {
  return static_cast<uint8_t>(std::clamp(sum >> precision, 0, 255));
}

void ResizeAcross(const Image& image, const FilterTaps& taps, Image& out) {
  const int32_t half = 1 << (taps.precision - 1);
  for (int y = 0; y < image.height; ++y) {
    const uint8_t* row = image.row(y);
    uint8_t* to = out.rgb.data() + static_cast<size_t>(y) * out.width * 3;
    for (int x = 0; x < out.width; ++x, to += 3) {
      const int16_t* weights = taps.weights.data() + static_cast<size_t>(x) * taps.stride;
      const uint8_t* from = row + static_cast<size_t>(taps.starts[x]) * 3;
      int32_t red = half;
      int32_t green = half;
      int32_t blue = half;
      for (int j = 0; j < taps.counts[x]; ++j, from += 3) {
        red += from[0] * weights[j];
        green += from[1] * weights[j];
        blue += from[2] * weights[j];
      }
      to[0] = ToByte(red, taps.precision);
      to[1] = ToByte(green, taps.precision);
      to[2] = ToByte(blue, taps.precision);
    }
  }
}

void ResizeDown(const Image& image, const FilterTaps& taps, Image& out) {
  const size_t row_bytes = static_cast<size_t>(image.width) * 3;
  std::vector<int32_t> sums(row_bytes);
  for (int y = 0; y < out.height; ++y) {
    std::ranges::fill(sums, 1 << (taps.precision - 1));
    const int16_t* weights = taps.weights.data() + static_cast<size_t>(y) * taps.stride;
    for (int j = 0; j < taps.counts[y]; ++j) {
      const uint8_t* from = image.row(taps.starts[y] + j);
      const int32_t weight = weights[j];
      int32_t* to = sums.data();
      for (size_t i = 0; i < row_bytes; ++i) to[i] += from[i] * weight;
    }
    uint8_t* to = out.rgb.data() + y * row_bytes;
    for (size_t i = 0; i < row_bytes; ++i) to[i] = ToByte(sums[i], taps.precision);
  }
}

Image Blank(int width, int height) {
  return {width, height, std::vector<uint8_t>(static_cast<size_t>(width) * height * 3)};
}

}  // namespace

Image ResizeImage(const Image& image, int width, int height, ResizeFilter filter) {
  return ResizeRegion(image, width, height, filter, {0, 0, width, height});
}

Image ResizeRegion(const Image& image, int width, int height, ResizeFilter filter,
                   const ImageRegion& region) {
  CHECK(width >= 1 && height >= 1 && region.width >= 1 && region.height >= 1);
  CHECK(region.left >= 0 && region.left + region.width <= width);
  CHECK(region.top >= 0 && region.top + region.height <= height);
  Image across;
  if (width == image.width) {
    across = CropImage(image, {region.left, 0, region.width, image.height});
  } else {
    across = Blank(region.width, image.height);
    ResizeAcross(image, TapsOf(image.width, width, region.left, region.width, filter), across);
  }
  if (height == image.height && region.height == height) return across;
  if (height == image.height)
    return CropImage(across, {0, region.top, region.width, region.height});
  Image resized = Blank(region.width, region.height);
  ResizeDown(across, TapsOf(image.height, height, region.top, region.height, filter), resized);
  return resized;
}

Image CropImage(const Image& image, const ImageRegion& region) {
  if (region.width == image.width && region.height == image.height) return image;
  Image out{region.width, region.height, {}};
  out.rgb.reserve(3 * static_cast<size_t>(region.width) * region.height);
  for (int y = 0; y < region.height; ++y) {
    const uint8_t* from = image.row(region.top + y) + 3 * static_cast<size_t>(region.left);
    out.rgb.insert(out.rgb.end(), from, from + 3 * static_cast<size_t>(region.width));
  }
  return out;
}

Image PadImage(const Image& image, int width, int height, int left, int top,
               const std::array<uint8_t, 3>& color) {
  CHECK(left >= 0 && top >= 0 && left + image.width <= width && top + image.height <= height);
  Image out = Blank(width, height);
  if (color != std::array<uint8_t, 3>{}) {
    for (size_t i = 0; i < out.rgb.size(); ++i) out.rgb[i] = color[i % 3];
  }
  for (int y = 0; y < image.height; ++y) {
    std::copy_n(image.row(y), 3 * static_cast<size_t>(image.width),
                out.rgb.data() + 3 * (static_cast<size_t>(top + y) * width + left));
  }
  return out;
}

int64_t ResizeBytes(int64_t from_width, int64_t from_height, int64_t width, int64_t height) {
  // A filter weight takes 10 bytes (as float64 and as 16 bits), with at most 8 weights per pixel of
  // a side's longer length. The last term is for the sums of a row.
  const int64_t taps = 10 * (8 * std::max(from_width, width) + 8 * std::max(from_height, height));
  return 3 * width * (from_height + height) + taps + 16 * width;
}

}  // namespace sluice
