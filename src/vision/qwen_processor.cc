// Qwen2-VL and similar models (Qwen2.5-VL, Qwen3-VL, Qwen3.5, dots.ocr, GLM, PaddleOCR-VL): rounds
// sides to multiples of a merged patch, within limits on the number of pixels.
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "vision/processor_settings.h"

namespace sluice {
namespace {

struct SmartSize {
  int64_t height = 0;
  int64_t width = 0;
};

class QwenProcessor : public ImageProcessor {
 public:
  struct Settings {
    SmartResizeRule rule = SmartResizeRule::kQwen;
    int64_t min_pixels = 56 * 56;
    int64_t max_pixels = 28 * 28 * 1280;
    int patch = 14;
    int temporal = 2;
    int merge = 2;
    ResizeFilter filter = ResizeFilter::kBicubic;
    PixelTable::Settings pixels;
    MarkerToken image;
  };

  explicit QwenProcessor(Settings settings)
      : settings_(std::move(settings)), table_(settings_.pixels) {
    placeholder_ = settings_.image.text;
  }

  Result<ImageParts> Process(const Image& image) const override {
    ASSIGN_OR_RETURN(const SmartSize size, SizeOf(image.width, image.height));
    const Image resized = ResizeImage(image, static_cast<int>(size.width),
                                      static_cast<int>(size.height), settings_.filter);
    const int patch = settings_.patch;
    const bool planes = settings_.rule == SmartResizeRule::kPaddle;
    ProcessedImage out;
    out.grid = {1, resized.height / patch, resized.width / patch};
    const int64_t patches = int64_t{out.grid[1]} * out.grid[2];
    const int64_t channels = 3LL * settings_.temporal;
    out.shape = planes ? std::vector<int64_t>{patches, channels, patch, patch}
                       : std::vector<int64_t>{patches, channels * patch * patch};
    out.values.resize(patches * channels * patch * patch);
    WriteBlockPatches(resized, table_, patch, planes ? 1 : settings_.merge, settings_.temporal,
                      out.values.data());
    AppendTokens(out, settings_.image.id, patches / (int64_t{settings_.merge} * settings_.merge),
                 true);
    FinishImage(out);
    ImageParts parts;
    parts.push_back(std::make_shared<const ProcessedImage>(std::move(out)));
    return parts;
  }

  std::optional<int64_t> MemoryBytes(int width, int height) const override {
    const Result<SmartSize> size = SizeOf(width, height);
    if (!size) return std::nullopt;
    const int64_t pixels = size->width * size->height;
    return 12 * settings_.temporal * pixels +
           10 * (pixels / (int64_t{settings_.patch} * settings_.patch)) +
           ResizeBytes(width, height, size->width, size->height);
  }

  std::string Expansion(const ImageParts& parts) const override {
    return TextOfTokens(*parts.front(), {settings_.image});
  }

 private:
  // Rounds half to even, as Python's round() does.
  static int64_t Round(double value) { return static_cast<int64_t>(std::nearbyint(value)); }

  // Enlarges sides that are smaller than a merged patch, which some rules do first.
  void Enlarge(double factor, int64_t& height, int64_t& width) const {
    if (settings_.rule == SmartResizeRule::kPaddle) {
      if (height < factor) {
        width = Round(static_cast<double>(width) * factor / static_cast<double>(height));
        height = static_cast<int64_t>(factor);
      }
      if (width < factor) {
        height = Round(static_cast<double>(height) * factor / static_cast<double>(width));
        width = static_cast<int64_t>(factor);
      }
    } else if (settings_.rule == SmartResizeRule::kGlm && (height < factor || width < factor)) {
      const double scale =
          std::max(factor / static_cast<double>(height), factor / static_cast<double>(width));
      height = static_cast<int64_t>(static_cast<double>(height) * scale);
      width = static_cast<int64_t>(static_cast<double>(width) * scale);
    }
  }

  Result<SmartSize> SizeOf(int given_width, int given_height) const {
    int64_t height = given_height;
    int64_t width = given_width;
    const double factor = settings_.patch * settings_.merge;
    Enlarge(factor, height, width);
    const double ratio =
        static_cast<double>(std::max(height, width)) / static_cast<double>(std::min(height, width));
    if (ratio > 200) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "an image of {} x {} pixels is too thin: one side may be at most 200 times the other",
              given_width, given_height));
    }
    // GLM counts the pixels of all frames, because an image is repeated `temporal` times.
    const int64_t frames = settings_.rule == SmartResizeRule::kGlm ? settings_.temporal : 1;
    SmartSize size{Round(height / factor) * static_cast<int64_t>(factor),
                   Round(width / factor) * static_cast<int64_t>(factor)};
    const int64_t count = frames * size.height * size.width;
    const auto exact = static_cast<double>(frames * height * width);
    if (count > settings_.max_pixels) {
      const double beta = std::sqrt(exact / static_cast<double>(settings_.max_pixels));
      const auto shrink = [&](int64_t side) {
        return std::max(
            static_cast<int64_t>(factor),
            static_cast<int64_t>(std::floor(static_cast<double>(side) / beta / factor)) *
                static_cast<int64_t>(factor));
      };
      size = {shrink(height), shrink(width)};
    } else if (count < settings_.min_pixels) {
      const double beta = std::sqrt(static_cast<double>(settings_.min_pixels) / exact);
      const auto grow = [&](int64_t side) {
        return static_cast<int64_t>(std::ceil(static_cast<double>(side) * beta / factor)) *
               static_cast<int64_t>(factor);
      };
      size = {grow(height), grow(width)};
    }
    if (size.height < 1 || size.width < 1 || size.height * size.width > kMaxProcessedPixels) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("an image of {} x {} pixels would be resized to {} x {}", given_width,
                              given_height, size.width, size.height));
    }
    return size;
  }

  Settings settings_;
  PixelTable table_;
};

// Returns the defaults of each rule.
QwenProcessor::Settings DefaultsOf(SmartResizeRule rule) {
  QwenProcessor::Settings out;
  out.rule = rule;
  out.pixels.mean = kClipMean;
  out.pixels.deviation = kClipDeviation;
  if (rule == SmartResizeRule::kGlm) {
    out.min_pixels = 112 * 112;
    out.max_pixels = 28 * 28 * 15000;
  } else if (rule == SmartResizeRule::kPaddle) {
    out.min_pixels = 384 * 384;
    out.max_pixels = 1536 * 1536;
    out.temporal = 1;
  }
  return out;
}

// Reads min_pixels and max_pixels, which take precedence over `size`.
Status ReadPixelBounds(const ProcessorSettings& settings, QwenProcessor::Settings& out) {
  constexpr int64_t kMost = int64_t{1} << 40;
  const JsonFields fields = settings.fields();
  ASSIGN_OR_RETURN(const json::Value* size, fields.Object("size"));
  if (size != nullptr) {
    const JsonFields edges(*size, "preprocessor_config.json.size.");
    ASSIGN_OR_RETURN(const std::optional<int64_t> least, edges.Integer("shortest_edge", 1, kMost));
    ASSIGN_OR_RETURN(const std::optional<int64_t> most, edges.Integer("longest_edge", 1, kMost));
    out.min_pixels = least.value_or(out.min_pixels);
    out.max_pixels = most.value_or(out.max_pixels);
  }
  if (out.rule != SmartResizeRule::kGlm) {
    ASSIGN_OR_RETURN(const std::optional<int64_t> least, fields.Integer("min_pixels", 1, kMost));
    ASSIGN_OR_RETURN(const std::optional<int64_t> most, fields.Integer("max_pixels", 1, kMost));
    out.min_pixels = least.value_or(out.min_pixels);
    out.max_pixels = most.value_or(out.max_pixels);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ImageProcessor>> CreateQwenProcessor(const ProcessorInputs& inputs,
                                                            SmartResizeRule rule) {
  ASSIGN_OR_RETURN(
      const ProcessorSettings settings,
      ProcessorSettings::Read(inputs, {"size", "min_pixels", "max_pixels", "patch_size",
                                       "temporal_patch_size", "merge_size"}));
  QwenProcessor::Settings out = DefaultsOf(rule);
  RETURN_IF_ERROR(ReadPixelBounds(settings, out));
  ASSIGN_OR_RETURN(out.patch, settings.Size("patch_size", out.patch));
  ASSIGN_OR_RETURN(out.temporal, settings.Size("temporal_patch_size", out.temporal));
  ASSIGN_OR_RETURN(out.merge, settings.Size("merge_size", out.merge));
  if (out.patch > 256 || out.temporal > 16 || out.merge > 16) {
    return Fail(ErrorCode::kUnsupported,
                "patch_size above 256, temporal_patch_size or merge_size above 16");
  }
  ASSIGN_OR_RETURN(out.filter, settings.Filter(ResizeFilter::kBicubic));
  ASSIGN_OR_RETURN(out.pixels, settings.Pixels(out.pixels));
  ASSIGN_OR_RETURN(out.image, TokenOfConfig(inputs, "image_token_id", "image_token_index"));
  return std::make_unique<QwenProcessor>(std::move(out));
}

}  // namespace sluice
