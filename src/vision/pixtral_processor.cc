// Pixtral and Mistral 3: keeps an image's aspect ratio and shrinks it to the size limit. Each row
// of tokens ends with a marker.
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "vision/processor_settings.h"

namespace sluice {
namespace {

struct PixtralGrid {
  int rows = 0;  // number of rows of tokens
  int columns = 0;
};

class PixtralProcessor : public ImageProcessor {
 public:
  struct Settings {
    int max_height = 1024;
    int max_width = 1024;
    int patch = 16;
    int merge = 1;
    ResizeFilter filter = ResizeFilter::kBicubic;
    PixelTable::Settings pixels;
    MarkerToken image, row_end, end;
  };

  explicit PixtralProcessor(Settings settings)
      : settings_(std::move(settings)), table_(settings_.pixels) {
    placeholder_ = settings_.image.text;
  }

  Result<ImageParts> Process(const Image& image) const override {
    const PixtralGrid size = GridOf(image.width, image.height);
    if (size.rows < 1 || size.columns < 1) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("an image of {} x {} pixels is too thin: one side becomes 0 when the "
                              "other is reduced to {} pixels",
                              image.width, image.height,
                              std::max(settings_.max_width, settings_.max_height)));
    }
    const int unit = settings_.patch * settings_.merge;
    const Image resized =
        ResizeImage(image, size.columns * unit, size.rows * unit, settings_.filter);
    ProcessedImage out;
    out.shape = {3, resized.height, resized.width};
    out.grid = {1, size.rows * settings_.merge, size.columns * settings_.merge};
    out.values.resize(3 * static_cast<size_t>(resized.height) * resized.width);
    table_.WritePlanes(resized, out.values.data());
    for (int row = 0; row < size.rows; ++row) {
      AppendTokens(out, settings_.image.id, size.columns, true);
      AppendTokens(out, row + 1 < size.rows ? settings_.row_end.id : settings_.end.id, 1, false);
    }
    FinishImage(out);
    ImageParts parts;
    parts.push_back(std::make_shared<const ProcessedImage>(std::move(out)));
    return parts;
  }

  std::optional<int64_t> MemoryBytes(int width, int height) const override {
    const PixtralGrid size = GridOf(width, height);
    if (size.rows < 1 || size.columns < 1) return std::nullopt;
    const int64_t unit = int64_t{settings_.patch} * settings_.merge;
    return 12 * unit * unit * size.rows * size.columns + 10LL * size.rows * (size.columns + 1) +
           ResizeBytes(width, height, unit * size.columns, unit * size.rows);
  }

  std::string Expansion(const ImageParts& parts) const override {
    return TextOfTokens(*parts.front(), {settings_.image, settings_.row_end, settings_.end});
  }

 private:
  // Rounds sides up to whole tokens. A side of 0 pixels has no tokens.
  PixtralGrid GridOf(int width, int height) const {
    const double ratio = std::max(static_cast<double>(height) / settings_.max_height,
                                  static_cast<double>(width) / settings_.max_width);
    if (ratio > 1) {
      height = static_cast<int>(std::floor(height / ratio));
      width = static_cast<int>(std::floor(width / ratio));
    }
    const int unit = settings_.patch * settings_.merge;
    return {(height + unit - 1) / unit, (width + unit - 1) / unit};
  }

  Settings settings_;
  PixelTable table_;
};

// Reads a size given as a number or as {"height": n, "width": n}; the sides must be equal.
Result<int> SquareSide(const ProcessorSettings& settings, std::string_view name, int otherwise) {
  const json::Value* given = settings.fields().Given(name);
  if (given == nullptr || !given->is_object()) return settings.Size(name, otherwise);
  const JsonFields sides(*given, fmt::format("preprocessor_config.json.{}.", name));
  ASSIGN_OR_RETURN(const int64_t height, sides.RequiredInteger("height", 1, 4096));
  ASSIGN_OR_RETURN(const int64_t width, sides.RequiredInteger("width", 1, 4096));
  if (height != width)
    return Fail(ErrorCode::kUnsupported,
                fmt::format("preprocessor_config.json.{}: expected equal sides", name));
  return static_cast<int>(height);
}

Status ReadPixtralSize(const ProcessorSettings& settings, PixtralProcessor::Settings& out) {
  ASSIGN_OR_RETURN(const json::Value* size, settings.fields().Object("size"));
  if (size == nullptr) return {};
  const JsonFields sides(*size, "preprocessor_config.json.size.");
  ASSIGN_OR_RETURN(const std::optional<int64_t> longest, sides.Integer("longest_edge", 1, 16384));
  if (longest) {
    out.max_height = out.max_width = static_cast<int>(*longest);
    return {};
  }
  ASSIGN_OR_RETURN(const int64_t height, sides.RequiredInteger("height", 1, 16384));
  ASSIGN_OR_RETURN(const int64_t width, sides.RequiredInteger("width", 1, 16384));
  out.max_height = static_cast<int>(height);
  out.max_width = static_cast<int>(width);
  return {};
}

}  // namespace

Result<std::unique_ptr<ImageProcessor>> CreatePixtralProcessor(const ProcessorInputs& inputs) {
  ASSIGN_OR_RETURN(const ProcessorSettings settings,
                   ProcessorSettings::Read(inputs, {"size", "patch_size", "do_pad"}));
  PixtralProcessor::Settings out;
  RETURN_IF_ERROR(ReadPixtralSize(settings, out));
  ASSIGN_OR_RETURN(out.patch, SquareSide(settings, "patch_size", 16));
  std::string row_end = "[IMG_BREAK]";
  std::string end = "[IMG_END]";
  if (inputs.processor.is_object()) {
    const JsonFields fields(inputs.processor, "processor_config.json.");
    ASSIGN_OR_RETURN(const std::optional<int64_t> patch, fields.Integer("patch_size", 1, 4096));
    ASSIGN_OR_RETURN(const std::optional<int64_t> merge,
                     fields.Integer("spatial_merge_size", 1, 16));
    ASSIGN_OR_RETURN(const std::optional<std::string> given_row_end,
                     fields.String("image_break_token"));
    ASSIGN_OR_RETURN(const std::optional<std::string> given_end, fields.String("image_end_token"));
    out.patch = static_cast<int>(patch.value_or(out.patch));
    out.merge = static_cast<int>(merge.value_or(1));
    row_end = given_row_end.value_or(row_end);
    end = given_end.value_or(end);
  }
  ASSIGN_OR_RETURN(out.filter, settings.Filter(ResizeFilter::kBicubic));
  PixelTable::Settings pixels;
  pixels.mean = kClipMean;
  pixels.deviation = kClipDeviation;
  ASSIGN_OR_RETURN(out.pixels, settings.Pixels(pixels));
  ASSIGN_OR_RETURN(out.image, TokenOfConfig(inputs, "image_token_index", "image_token_id"));
  ASSIGN_OR_RETURN(out.row_end, TokenOfText(inputs, row_end));
  ASSIGN_OR_RETURN(out.end, TokenOfText(inputs, end));
  return std::make_unique<PixtralProcessor>(std::move(out));
}

}  // namespace sluice
