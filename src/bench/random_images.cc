#include "bench/random_images.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "base/base64.h"
#include "media/encode_jpeg.h"

namespace sluice::bench {
namespace {

constexpr std::string_view kExpected =
    "expected {(height, width, frames): weight, ...} such as {(256, 256, 1): 0.5, (720, 1280, 1): "
    "0.5}";

// Reads the text of the buckets token by token.
class BucketReader {
 public:
  explicit BucketReader(std::string_view text) : rest_(text) { Skip(); }

  bool Take(char wanted) {
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    Skip();
    return true;
  }
  bool AtEnd() const { return rest_.empty(); }
  template <typename Number>
  bool TakeNumber(Number& number) {
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (error != std::errc()) return false;
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    Skip();
    return true;
  }

 private:
  void Skip() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size())); }

  std::string_view rest_;
};

// Reads one entry "(height, width, frames): weight". In JSON, the part before the colon is in
// quotes.
bool ReadBucket(BucketReader& reader, ImageBucket& bucket, int& frames) {
  const char quotes[] = {'"', '\''};
  const auto* quote =
      std::find_if(std::begin(quotes), std::end(quotes), [&](char c) { return reader.Take(c); });
  return reader.Take('(') && reader.TakeNumber(bucket.height) && reader.Take(',') &&
         reader.TakeNumber(bucket.width) && reader.Take(',') && reader.TakeNumber(frames) &&
         reader.Take(')') && (quote == std::end(quotes) || reader.Take(*quote)) &&
         reader.Take(':') && reader.TakeNumber(bucket.weight);
}

Image Noise(const ImageBucket& bucket, std::mt19937_64& random) {
  Image image{bucket.width, bucket.height, {}};
  image.rgb.resize(size_t{3} * static_cast<size_t>(bucket.width) *
                   static_cast<size_t>(bucket.height));
  for (size_t i = 0; i < image.rgb.size();) {
    uint64_t bits = random();
    for (int k = 0; k < 8 && i < image.rgb.size(); ++k, bits >>= 8)
      image.rgb[i++] = static_cast<uint8_t>(bits);
  }
  return image;
}

}  // namespace

Result<std::vector<ImageBucket>> ParseImageBuckets(std::string_view text) {
  const auto bad = [&] {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}, found '{}'", kExpected, text));
  };
  BucketReader reader(text);
  std::vector<ImageBucket> buckets;
  if (!reader.Take('{')) return bad();
  for (bool more = !reader.Take('}'); more;) {
    ImageBucket bucket;
    int frames = 0;
    if (!ReadBucket(reader, bucket, frames) || !(bucket.weight >= 0) || bucket.weight > 1e6 ||
        frames < 1)
      return bad();
    if (bucket.height < 1 || bucket.width < 1 || bucket.height > kMaxImageSide ||
        bucket.width > kMaxImageSide) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("expected sides of 1 to {}, found {} x {}", kMaxImageSide,
                              bucket.height, bucket.width));
    }
    if (bucket.weight > 0 && frames > 1) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("({}, {}, {}) is a video, which is not supported; supported are "
                              "images, of 1 frame",
                              bucket.height, bucket.width, frames));
    }
    if (bucket.weight > 0) buckets.push_back(bucket);
    const bool goes_on = reader.Take(',');
    more = !reader.Take('}');  // a comma may precede it, as in Python
    if (more && !goes_on) return bad();
  }
  if (!reader.AtEnd() || buckets.empty()) return bad();
  return buckets;
}

Result<std::vector<std::vector<std::string>>> MakeRandomImages(const RandomImageOptions& options,
                                                               int64_t num_requests,
                                                               uint64_t seed) {
  const auto base = static_cast<double>(options.base_items);
  const auto low = static_cast<int64_t>(std::floor(base * (1 - options.range_ratio)));
  const auto high = std::min(static_cast<int64_t>(std::ceil(base * (1 + options.range_ratio))),
                             options.most_items);
  if (low > high) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("a request needs at least {} images, but at most {} are allowed", low, high));
  }
  std::vector<double> weights;
  for (const ImageBucket& bucket : options.buckets) weights.push_back(bucket.weight);
  std::mt19937_64 random(seed);
  std::discrete_distribution<size_t> kind(weights.begin(), weights.end());
  std::uniform_int_distribution<int64_t> count(low, high);
  std::vector<std::vector<std::string>> requests(static_cast<size_t>(num_requests));
  for (auto& images : requests) {
    images.resize(static_cast<size_t>(count(random)));
    for (std::string& url : images) {
      ASSIGN_OR_RETURN(const std::string file,
                       EncodeJpeg(Noise(options.buckets[kind(random)], random)));
      url = "data:image/jpeg;base64,";
      AppendBase64(url, file);
    }
  }
  return requests;
}

}  // namespace sluice::bench
