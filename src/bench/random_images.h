// Images of noise that go with random prompts: `--dataset-name random-mm`. Numbers and sizes follow
// the rules of vLLM's data set of that name; the images are not the same ones bit for bit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::bench {

// A size of images, and how often it is drawn.
struct ImageBucket {
  int height = 0, width = 0;  // pixels
  double weight = 0;          // above 0; a share of all weights
};

struct RandomImageOptions {
  int64_t base_items = 1;  // images of a request
  // Their number is drawn from [base * (1 - ratio), base * (1 + ratio)].
  double range_ratio = 0;
  int64_t most_items = 255;
  std::vector<ImageBucket> buckets = {{256, 256, 0.5}, {720, 1280, 0.5}};
};

// The longest side of an image that may be asked for.
inline constexpr int kMaxImageSide = 16384;

// "{(height, width, frames): weight, ...}", as Python or JSON writes it; sizes of weight 0 are left
// out. kInvalidArgument where it is something else, kUnsupported for more than one frame, which
// would be a video.
Result<std::vector<ImageBucket>> ParseImageBuckets(std::string_view text);

// For each request its images, as data: URLs of JPEG files. The same for the same seed.
// kInvalidArgument for numbers that contradict each other.
Result<std::vector<std::vector<std::string>>> MakeRandomImages(const RandomImageOptions& options,
                                                               int64_t num_requests, uint64_t seed);

}  // namespace sluice::bench
