// Gemma 4: scales an image to use the maximum number of tokens per image.
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "vision/processor_settings.h"

namespace sluice {
namespace {

struct FilledSize {
  int height = 0;
  int width = 0;
};

class Gemma4Processor : public ImageProcessor {
 public:
  struct Settings {
    int patch = 16;
    int max_tokens = 280;
    int pooling = 3;
    ResizeFilter filter = ResizeFilter::kBicubic;
    PixelTable::Settings pixels;
    MarkerToken begin, end, soft;
  };

  explicit Gemma4Processor(Settings settings)
      : settings_(std::move(settings)), table_(settings_.pixels) {
    placeholder_ = settings_.soft.text;
  }

  Result<ImageParts> Process(const Image& image) const override {
    ASSIGN_OR_RETURN(const FilledSize size, SizeOf(image.width, image.height));
    const Image resized = ResizeImage(image, size.width, size.height, settings_.filter);
    ProcessedImage out;
    out.grid = {1, size.height / settings_.patch, size.width / settings_.patch};
    const int64_t patches = int64_t{out.grid[1]} * out.grid[2];
    out.shape = {patches, 3LL * settings_.patch * settings_.patch};
    out.values.resize(out.shape[0] * out.shape[1]);
    WriteChannelLastPatches(resized, table_, settings_.patch, out.values.data());
    AppendTokens(out, settings_.begin.id, 1, false);
    AppendTokens(out, settings_.soft.id, patches / (settings_.pooling * settings_.pooling), true);
    AppendTokens(out, settings_.end.id, 1, false);
    FinishImage(out);
    ImageParts parts;
    parts.push_back(std::make_shared<const ProcessedImage>(std::move(out)));
    return parts;
  }

  std::optional<int64_t> MemoryBytes(int width, int height) const override {
    const Result<FilledSize> size = SizeOf(width, height);
    if (!size) return std::nullopt;
    return 12LL * size->width * size->height + 5LL * (settings_.max_tokens + 2) +
           ResizeBytes(width, height, size->width, size->height);
  }

  std::string Expansion(const ImageParts& parts) const override {
    return TextOfTokens(*parts.front(), {settings_.soft, settings_.begin, settings_.end});
  }

 private:
  // Returns the largest size, in multiples of `pooling` patches, that fits and approximately keeps
  // the aspect ratio.
  Result<FilledSize> SizeOf(int width, int height) const {
    const int64_t max_patches =
        int64_t{settings_.max_tokens} * settings_.pooling * settings_.pooling;
    const int64_t most = max_patches * settings_.patch * settings_.patch;
    const int step = settings_.pooling * settings_.patch;
    const double factor =
        std::sqrt(static_cast<double>(most) / static_cast<double>(int64_t{height} * width));
    int64_t down = static_cast<int64_t>(std::floor(factor * height / step)) * step;
    int64_t across = static_cast<int64_t>(std::floor(factor * width / step)) * step;
    if (down == 0 && across == 0) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("an image of {} x {} pixels has no room for one token", width, height));
    }
    const int64_t longest = int64_t{settings_.max_tokens} * step;
    if (down == 0) {
      down = step;
      across = std::min<int64_t>(int64_t{width / height} * step, longest);
    } else if (across == 0) {
      across = step;
      down = std::min<int64_t>(int64_t{height / width} * step, longest);
    }
    if (down * across > most || down < 1 || across < 1) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("an image of {} x {} pixels would have more than {} patches: send "
                              "one with a less extreme aspect ratio",
                              width, height, max_patches));
    }
    return FilledSize{static_cast<int>(down), static_cast<int>(across)};
  }

  Settings settings_;
  PixelTable table_;
};

}  // namespace

Result<std::unique_ptr<ImageProcessor>> CreateGemma4Processor(const ProcessorInputs& inputs) {
  ASSIGN_OR_RETURN(
      const ProcessorSettings settings,
      ProcessorSettings::Read(inputs, {"patch_size", "max_soft_tokens", "pooling_kernel_size"}));
  Gemma4Processor::Settings out;
  ASSIGN_OR_RETURN(out.patch, settings.Size("patch_size", 16));
  ASSIGN_OR_RETURN(out.max_tokens, settings.Size("max_soft_tokens", 280));
  ASSIGN_OR_RETURN(out.pooling, settings.Size("pooling_kernel_size", 3));
  static constexpr int kMaxTokens[] = {70, 140, 280, 560, 1120};
  if (std::ranges::find(kMaxTokens, out.max_tokens) == std::end(kMaxTokens)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("max_soft_tokens: expected 70, 140, 280, 560 or 1120, found {}",
                            out.max_tokens));
  }
  if (out.patch > 256 || out.pooling > 16)
    return Fail(ErrorCode::kUnsupported, "patch_size above 256 or pooling_kernel_size above 16");
  ASSIGN_OR_RETURN(out.filter, settings.Filter(ResizeFilter::kBicubic));
  PixelTable::Settings pixels;
  pixels.normalize = false;
  pixels.mean = {0, 0, 0};
  pixels.deviation = {1, 1, 1};
  ASSIGN_OR_RETURN(out.pixels, settings.Pixels(pixels));
  ASSIGN_OR_RETURN(out.begin, TokenOfConfig(inputs, "boi_token_id", "boi_token_index"));
  ASSIGN_OR_RETURN(out.end, TokenOfConfig(inputs, "eoi_token_id", "eoi_token_index"));
  ASSIGN_OR_RETURN(out.soft, TokenOfConfig(inputs, "image_token_id", "image_token_index"));
  return std::make_unique<Gemma4Processor>(std::move(out));
}

}  // namespace sluice
