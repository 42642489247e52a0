#include "vision/pixel_values.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace sluice {
namespace {

// Rounds to bfloat16, half to even. REQUIRES: finite.
float RoundToBfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000U);
}

float ValueInBfloat16(const PixelTable::Settings& settings, int channel, float byte) {
  float value = byte;  // up to 255: exact
  if (settings.rescale)
    value = RoundToBfloat16(value * static_cast<float>(settings.rescale_factor));
  if (!settings.normalize) return value;
  const float mean = RoundToBfloat16(static_cast<float>(settings.mean[channel]));
  const float deviation = RoundToBfloat16(static_cast<float>(settings.deviation[channel]));
  return RoundToBfloat16(RoundToBfloat16(value - mean) / deviation);
}

float ValueInFloat32(const PixelTable::Settings& settings, int channel, float byte) {
  if (!settings.normalize)
    return settings.rescale ? byte * static_cast<float>(settings.rescale_factor) : byte;
  auto mean = static_cast<float>(settings.mean[channel]);
  auto deviation = static_cast<float>(settings.deviation[channel]);
  if (settings.rescale) {
    const auto scale = static_cast<float>(1.0 / settings.rescale_factor);
    mean *= scale;
    deviation *= scale;
  }
  return (byte - mean) / deviation;
}

}  // namespace

PixelTable::PixelTable(const Settings& settings) {
  for (int channel = 0; channel < 3; ++channel) {
    for (int byte = 0; byte < 256; ++byte) {
      values_[channel][byte] = settings.in_bfloat16
                                   ? ValueInBfloat16(settings, channel, static_cast<float>(byte))
                                   : ValueInFloat32(settings, channel, static_cast<float>(byte));
    }
  }
}

void PixelTable::WritePlanes(const Image& image, float* out) const {
  const size_t count = static_cast<size_t>(image.width) * image.height;
  for (int channel = 0; channel < 3; ++channel) {
    const std::array<float, 256>& values = values_[channel];
    const uint8_t* from = image.rgb.data() + channel;
    for (size_t i = 0; i < count; ++i) *out++ = values[from[3 * i]];
  }
}

void WriteChannelLastPatches(const Image& image, const PixelTable& table, int patch, float* out) {
  for (int top = 0; top < image.height; top += patch) {
    for (int left = 0; left < image.width; left += patch) {
      for (int y = 0; y < patch; ++y) {
        const uint8_t* from = image.row(top + y) + 3 * static_cast<size_t>(left);
        for (int i = 0; i < 3 * patch; ++i) *out++ = table.At(i % 3, from[i]);
      }
    }
  }
}

void WriteBlockPatches(const Image& image, const PixelTable& table, int patch, int merge,
                       int frames, float* out) {
  const int block = patch * merge;
  const size_t frame_values = static_cast<size_t>(patch) * patch;
  for (int block_top = 0; block_top < image.height; block_top += block) {
    for (int block_left = 0; block_left < image.width; block_left += block) {
      for (int inside = 0; inside < merge * merge; ++inside) {
        const int top = block_top + inside / merge * patch;
        const int left = block_left + inside % merge * patch;
        for (int channel = 0; channel < 3; ++channel) {
          float* frame = out;
          for (int y = 0; y < patch; ++y) {
            const uint8_t* from = image.row(top + y) + 3 * static_cast<size_t>(left) + channel;
            for (int x = 0; x < patch; ++x) *out++ = table.At(channel, from[3 * x]);
          }
          for (int repeat = 1; repeat < frames; ++repeat, out += frame_values)
            std::copy_n(frame, frame_values, out);
        }
      }
    }
  }
}

}  // namespace sluice
