// CLIP and SigLIP, as in LLaVA: makes an image a square by cutting out its middle or by squeezing
// it. LLaVA's own processor first pads it to a square.
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "vision/processor_settings.h"

namespace sluice {
namespace {

struct SquareSize {
  int height = 0, width = 0;
};

class SquareProcessor : public ImageProcessor {
 public:
  struct Settings {
    bool pads = false;      // whether to pad to a square first
    int shortest_edge = 0;  // 0: use `size`
    SquareSize size;
    bool crops = false;
    SquareSize crop;
    int patch = 14;
    int more_tokens = 0;  // tokens in addition to those of the patches; may be negative
    ResizeFilter filter = ResizeFilter::kBicubic;
    PixelTable::Settings pixels;
    MarkerToken image;
  };

  explicit SquareProcessor(Settings settings)
      : settings_(std::move(settings)), table_(settings_.pixels) {
    placeholder_ = settings_.image.text;
    for (size_t i = 0; i < 3; ++i)
      padding_[i] = static_cast<uint8_t>(std::clamp(settings_.pixels.mean[i] * 255, 0.0, 255.0));
  }

  Result<ImageParts> Process(const Image& image) const override {
    if (!Takes(image.width, image.height)) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("an image of {} x {} pixels is too thin", image.width, image.height));
    }
    const Image* from = &image;
    Image square;
    if (settings_.pads && image.width != image.height) {
      const int side = std::max(image.width, image.height);
      square = PadImage(image, side, side, (side - image.width) / 2, (side - image.height) / 2,
                        padding_);
      from = &square;
    }
    const Image made = MiddleOf(*from);
    ProcessedImage out;
    out.shape = {1, 3, made.height, made.width};
    out.grid = {1, made.height / settings_.patch, made.width / settings_.patch};
    out.values.resize(3 * static_cast<size_t>(made.height) * made.width);
    table_.WritePlanes(made, out.values.data());
    AppendTokens(out, settings_.image.id,
                 std::max(0, out.grid[1] * out.grid[2] + settings_.more_tokens), true);
    FinishImage(out);
    ImageParts parts;
    parts.push_back(std::make_shared<const ProcessedImage>(std::move(out)));
    return parts;
  }

  std::optional<int64_t> MemoryBytes(int width, int height) const override {
    if (!Takes(width, height)) return std::nullopt;
    int64_t bytes = 0;
    if (settings_.pads && width != height) {
      width = height = std::max(width, height);
      bytes += 3LL * width * width;
    }
    const SquareSize size = SizeOf(width, height);
    const SquareSize out = settings_.crops ? settings_.crop : size;
    const int64_t pixels = int64_t{out.height} * out.width;
    // Only weights for the cropped part of a side are stored.
    return bytes + 18 * pixels + 5 * pixels / (int64_t{settings_.patch} * settings_.patch) +
           3LL * width * height +
           ResizeBytes(width, height, std::min(size.width, out.width),
                       std::min(size.height, out.height));
  }

  std::string Expansion(const ImageParts& parts) const override {
    return TextOfTokens(*parts.front(), {settings_.image});
  }

 private:
  static constexpr int64_t kMostSide = 1 << 24;

  SquareSize SizeOf(int width, int height) const {
    if (settings_.shortest_edge == 0) return settings_.size;
    const int shorter = std::min(width, height), longer = std::max(width, height);
    const double exact = static_cast<double>(int64_t{settings_.shortest_edge} * longer) / shorter;
    const auto length = static_cast<int>(std::min(exact, static_cast<double>(kMostSide)));
    return width <= height ? SquareSize{length, settings_.shortest_edge}
                           : SquareSize{settings_.shortest_edge, length};
  }

  bool Takes(int width, int height) const {
    if (settings_.pads) {
      width = height = std::max(width, height);
      if (int64_t{width} * width > kMaxProcessedPixels) return false;
    }
    const SquareSize size = SizeOf(width, height);
    if (std::max(size.width, size.height) >= kMostSide) return false;
    return settings_.crops || int64_t{size.width} * size.height <= kMaxProcessedPixels;
  }

  // Resizes the image and returns the middle of the result, padded with black if it is too small.
  Image MiddleOf(const Image& image) const {
    const SquareSize size = SizeOf(image.width, image.height);
    if (!settings_.crops) return ResizeImage(image, size.width, size.height, settings_.filter);
    const SquareSize crop = settings_.crop;
    // A side that is shorter than the crop keeps its length at this point, and is padded later.
    const int left = std::max(0, (size.width - crop.width) / 2);
    const int top = std::max(0, (size.height - crop.height) / 2);
    const ImageRegion region{left, top, std::min(size.width, crop.width),
                             std::min(size.height, crop.height)};
    Image middle = ResizeRegion(image, size.width, size.height, settings_.filter, region);
    if (region.width == crop.width && region.height == crop.height) return middle;
    return PadImage(middle, crop.width, crop.height, (crop.width - region.width) / 2,
                    (crop.height - region.height) / 2, {});
  }

  Settings settings_;
  PixelTable table_;
  std::array<uint8_t, 3> padding_{};
};

// Reads {"height": n, "width": n}, or a number for a square.
Result<SquareSize> ReadBox(const ProcessorSettings& settings, std::string_view name,
                           SquareSize otherwise) {
  const json::Value* given = settings.fields().Given(name);
  if (given == nullptr) return otherwise;
  if (!given->is_object()) {
    ASSIGN_OR_RETURN(const int side, settings.Size(name, 1));
    return SquareSize{side, side};
  }
  const JsonFields sides(*given, fmt::format("preprocessor_config.json.{}.", name));
  ASSIGN_OR_RETURN(const int64_t height, sides.RequiredInteger("height", 1, 8192));
  ASSIGN_OR_RETURN(const int64_t width, sides.RequiredInteger("width", 1, 8192));
  return SquareSize{static_cast<int>(height), static_cast<int>(width)};
}

Status ReadSquareSize(const ProcessorSettings& settings, SquareProcessor::Settings& out) {
  const json::Value* given = settings.fields().Given("size");
  if (given == nullptr) return {};
  if (!given->is_object()) {
    ASSIGN_OR_RETURN(out.shortest_edge, settings.Size("size", 224));
    return {};
  }
  const JsonFields sides(*given, "preprocessor_config.json.size.");
  ASSIGN_OR_RETURN(const std::optional<int64_t> shortest, sides.Integer("shortest_edge", 1, 8192));
  if (sides.Given("longest_edge") != nullptr) {
    return Fail(ErrorCode::kUnsupported,
                "preprocessor_config.json.size.longest_edge is not supported by this processor");
  }
  out.shortest_edge = static_cast<int>(shortest.value_or(0));
  if (shortest) return {};
  ASSIGN_OR_RETURN(out.size, ReadBox(settings, "size", out.size));
  return {};
}

// Reads the number of tokens in addition to those of the patches. "default" means one token less,
// because the class token is not used.
Status ReadLlavaTokens(const ProcessorInputs& inputs, bool has_class,
                       SquareProcessor::Settings& out) {
  const json::Value* vision = inputs.config.Find("vision_config");
  const JsonFields of_tower(*vision, "config.json.vision_config.");
  ASSIGN_OR_RETURN(const std::optional<int64_t> tower_patch,
                   of_tower.Integer("patch_size", 1, 256));
  out.patch = static_cast<int>(tower_patch.value_or(has_class ? 32 : 16));
  if (!inputs.processor.is_object()) return {};
  const JsonFields fields(inputs.processor, "processor_config.json.");
  ASSIGN_OR_RETURN(const std::optional<int64_t> patch, fields.Integer("patch_size", 1, 256));
  ASSIGN_OR_RETURN(const std::optional<int64_t> more,
                   fields.Integer("num_additional_image_tokens", 0, 16));
  ASSIGN_OR_RETURN(const std::optional<std::string> strategy,
                   fields.String("vision_feature_select_strategy"));
  // In older files without patch_size, the tower's values apply.
  if (!patch) return {};
  out.patch = static_cast<int>(*patch);
  out.more_tokens = static_cast<int>(more.value_or(0)) - (strategy == "default" ? 1 : 0);
  return {};
}

}  // namespace

Result<std::unique_ptr<ImageProcessor>> CreateLlavaProcessor(const ProcessorInputs& inputs) {
  const json::Value* vision = inputs.config.Find("vision_config");
  if (!vision->is_object())
    return Fail(ErrorCode::kInvalidData, "config.json.vision_config: expected an object");
  ASSIGN_OR_RETURN(const std::optional<std::string> tower,
                   JsonFields(*vision, "config.json.vision_config.").String("model_type"));
  if (tower == "pixtral") return CreatePixtralProcessor(inputs);
  const bool has_class = tower.value_or("clip_vision_model") == "clip_vision_model";
  ASSIGN_OR_RETURN(
      const ProcessorSettings settings,
      ProcessorSettings::Read(inputs, {"size", "crop_size", "do_center_crop", "do_pad"}));
  ASSIGN_OR_RETURN(const std::string kind,
                   settings.Kind(has_class ? "CLIPImageProcessor" : "SiglipImageProcessor"));
  SquareProcessor::Settings out;
  PixelTable::Settings pixels;
  if (kind == "SiglipImageProcessor") {
    out.size = {224, 224};
  } else if (kind == "CLIPImageProcessor" || kind == "LlavaImageProcessor") {
    out.shortest_edge = 224;
    out.crops = true;
    pixels.mean = kClipMean;
    pixels.deviation = kClipDeviation;
  } else {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("image_processor_type {} in preprocessor_config.json is not supported "
                            "with LLaVA, only those of CLIP, SigLIP, LLaVA and Pixtral",
                            kind));
  }
  RETURN_IF_ERROR(ReadSquareSize(settings, out));
  ASSIGN_OR_RETURN(out.crop, ReadBox(settings, "crop_size", {224, 224}));
  const JsonFields fields = settings.fields();
  ASSIGN_OR_RETURN(const std::optional<bool> crops, fields.Bool("do_center_crop"));
  ASSIGN_OR_RETURN(const std::optional<bool> pads, fields.Bool("do_pad"));
  out.crops = crops.value_or(out.crops);
  out.pads = pads.value_or(false);
  if (out.pads && kind != "LlavaImageProcessor") {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("do_pad in preprocessor_config.json is not supported by {}", kind));
  }
  ASSIGN_OR_RETURN(out.filter, settings.Filter(ResizeFilter::kBicubic));
  ASSIGN_OR_RETURN(out.pixels, settings.Pixels(pixels));
  RETURN_IF_ERROR(ReadLlavaTokens(inputs, has_class, out));
  ASSIGN_OR_RETURN(out.image, TokenOfConfig(inputs, "image_token_index", "image_token_id"));
  return std::make_unique<SquareProcessor>(std::move(out));
}

}  // namespace sluice
