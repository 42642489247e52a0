// Makes noise images for random prompts: `--dataset-name random-mm`. Numbers and sizes follow the
// rules of vLLM's data set of that name; the images are not bit-identical.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::bench {

// An image size and its probability.
struct ImageBucket {
  int height = 0, width = 0;  // in pixels
  double weight = 0;          // positive; relative to the sum of weights
};

struct RandomImageOptions {
  int64_t base_items = 1;  // images per request
  // The number of images per request is in [base * (1 - ratio), base * (1 + ratio)].
  double range_ratio = 0;
  int64_t most_items = 255;
  std::vector<ImageBucket> buckets = {{256, 256, 0.5}, {720, 1280, 0.5}};
};

// Maximum length of an image's side, in pixels.
inline constexpr int kMaxImageSide = 16384;

// Parses "{(height, width, frames): weight, ...}" as Python or JSON writes it. Leaves out sizes
// with weight 0. kInvalidArgument for any other text, kUnsupported for more than one frame (a
// video).
Result<std::vector<ImageBucket>> ParseImageBuckets(std::string_view text);

// Returns the images of each request as data: URLs of JPEG files, identical for the same seed.
// kInvalidArgument for contradictory options.
Result<std::vector<std::vector<std::string>>> MakeRandomImages(const RandomImageOptions& options,
                                                               int64_t num_requests, uint64_t seed);

}  // namespace sluice::bench
