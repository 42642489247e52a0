// Images of noise for random prompts: `--dataset-name random-mm`. Numbers and sizes follow the
// rules of vLLM's data set of that name; the images are not bit-identical.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::bench {

// A size of images and its probability.
struct ImageBucket {
  int height = 0, width = 0;  // pixels
  double weight = 0;          // above 0; relative to the sum of weights
};

struct RandomImageOptions {
  int64_t base_items = 1;  // images per request
  // Their number is in [base * (1 - ratio), base * (1 + ratio)].
  double range_ratio = 0;
  int64_t most_items = 255;
  std::vector<ImageBucket> buckets = {{256, 256, 0.5}, {720, 1280, 0.5}};
};

// Maximum length of an image's side, in pixels.
inline constexpr int kMaxImageSide = 16384;

// Parses "{(height, width, frames): weight, ...}" as Python or JSON writes it; leaves out sizes of
// weight 0. kInvalidArgument for any other text, kUnsupported for more than one frame (a video).
Result<std::vector<ImageBucket>> ParseImageBuckets(std::string_view text);

// The images of each request, as data: URLs of JPEG files; identical for the same seed.
// kInvalidArgument for numbers that contradict each other.
Result<std::vector<std::vector<std::string>>> MakeRandomImages(const RandomImageOptions& options,
                                                               int64_t num_requests, uint64_t seed);

}  // namespace sluice::bench
