// LLaVA-NeXT: the input is the whole image as a square, then the tiles of a canvas with the image
// in its middle. The canvas is chosen among several sizes. The tower's rows for the empty borders
// are dropped.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "vision/processor_settings.h"
#include "vision/tile_grid.h"

namespace sluice {
namespace {

class LlavaNextProcessor : public ImageProcessor {
 public:
  struct Settings {
    int tile = 336;
    std::vector<TileGrid> canvases;
    int patch = 14;
    ResizeFilter filter = ResizeFilter::kBicubic;
    PixelTable::Settings pixels;
    MarkerToken image;
  };

  explicit LlavaNextProcessor(Settings settings)
      : settings_(std::move(settings)), table_(settings_.pixels) {
    placeholder_ = settings_.image.text;
  }

  Result<ImageParts> Process(const Image& image) const override {
    const TileGrid canvas = CanvasOf(image.width, image.height);
    const int tile = settings_.tile, side = tile / settings_.patch;
    const int tiles = canvas.rows * canvas.columns;
    ProcessedImage out;
    out.tiles = {canvas.rows, canvas.columns};
    out.shape = {tiles + 1, 3, tile, tile};
    out.grid = {1, side, side};
    out.kept = KeptOf(image.width, image.height, canvas);
    const size_t numbers = 3 * static_cast<size_t>(tile) * tile;
    out.values.resize(numbers * static_cast<size_t>(tiles + 1));
    float* to = out.values.data();
    table_.WritePlanes(ResizeImage(image, tile, tile, settings_.filter), to);
    const Image laid = Laid(image, canvas);
    for (int i = 0; i < tiles; ++i) {
      to += numbers;
      const ImageRegion region{i % canvas.columns * tile, i / canvas.columns * tile, tile, tile};
      table_.WritePlanes(CropImage(laid, region), to);
    }
    const int64_t rows = int64_t{side} * side + int64_t{out.kept[2]} * (out.kept[3] + 1);
    AppendTokens(out, settings_.image.id, rows, true);
    FinishImage(out);
    ImageParts parts;
    parts.push_back(std::make_shared<const ProcessedImage>(std::move(out)));
    return parts;
  }

  std::optional<int64_t> MemoryBytes(int width, int height) const override {
    const TileGrid canvas = CanvasOf(width, height);
    const int64_t tile = settings_.tile, side = tile / settings_.patch;
    const int64_t across = tile * canvas.columns, down = tile * canvas.rows;
    const int64_t units = int64_t{canvas.rows} * canvas.columns + 1;
    return units * (12 * tile * tile + 5 * side * (side + 1)) + 6 * across * down +
           6 * tile * tile + 3LL * width * height + ResizeBytes(width, height, across, down) +
           ResizeBytes(width, height, tile, tile);
  }

  std::string Expansion(const ImageParts& parts) const override {
    return TextOfTokens(*parts.front(), {settings_.image});
  }

 private:
  // Returns the canvas that keeps most of the image's pixels; among equal ones, the canvas with the
  // fewest unused pixels.
  TileGrid CanvasOf(int width, int height) const {
    TileGrid best = settings_.canvases.front();
    int64_t most_kept = 0, least_wasted = std::numeric_limits<int64_t>::max();
    for (const TileGrid& canvas : settings_.canvases) {
      const int64_t across = int64_t{canvas.columns} * settings_.tile;
      const int64_t down = int64_t{canvas.rows} * settings_.tile;
      const double scale =
          std::min(static_cast<double>(across) / width, static_cast<double>(down) / height);
      const auto new_width = static_cast<int64_t>(width * scale);
      const auto new_height = static_cast<int64_t>(height * scale);
      const int64_t kept = std::min(new_width * new_height, int64_t{width} * height);
      const int64_t wasted = across * down - kept;
      if (kept > most_kept || (kept == most_kept && wasted < least_wasted)) {
        most_kept = kept;
        least_wasted = wasted;
        best = canvas;
      }
    }
    return best;
  }

  Image Laid(const Image& image, const TileGrid& canvas) const {
    const int across = canvas.columns * settings_.tile, down = canvas.rows * settings_.tile;
    const double by_width = static_cast<double>(across) / image.width;
    const double by_height = static_cast<double>(down) / image.height;
    int width = across, height = down;
    if (by_width < by_height)
      height = std::min(static_cast<int>(std::ceil(image.height * by_width)), down);
    else
      width = std::min(static_cast<int>(std::ceil(image.width * by_height)), across);
    return PadImage(ResizeImage(image, width, height, settings_.filter), across, down,
                    (across - width) / 2, (down - height) / 2, {});
  }

  // Returns the patches of the canvas that show the image. Equal numbers of rows or columns are cut
  // off on both sides.
  std::array<int, 4> KeptOf(int width, int height, const TileGrid& canvas) const {
    const int side = settings_.tile / settings_.patch;
    const int across = canvas.columns * side, down = canvas.rows * side;
    // This follows transformers, which rounds to seven digits before truncating.
    const auto cut = [](double size) { return static_cast<int>(std::floor(size + 0.5e-7)); };
    std::array<int, 4> kept{0, 0, down, across};
    if (static_cast<double>(width) / height > static_cast<double>(across) / down) {
      kept[0] = (down - cut(height * (static_cast<double>(across) / width))) / 2;
      kept[2] = down - 2 * kept[0];
    } else {
      kept[1] = (across - cut(width * (static_cast<double>(down) / height))) / 2;
      kept[3] = across - 2 * kept[1];
    }
    return kept;
  }

  Settings settings_;
  PixelTable table_;
};

// Reads the side of a square, in either of its formats.
Result<int> ReadSquare(const ProcessorSettings& settings, std::string_view name, int otherwise) {
  const json::Value* given = settings.fields().Given(name);
  if (given == nullptr || !given->is_object()) return settings.Size(name, otherwise);
  const JsonFields sides(*given, fmt::format("preprocessor_config.json.{}.", name));
  ASSIGN_OR_RETURN(const std::optional<int64_t> shortest, sides.Integer("shortest_edge", 1, 4096));
  if (shortest) return static_cast<int>(*shortest);
  ASSIGN_OR_RETURN(const int64_t height, sides.RequiredInteger("height", 1, 4096));
  ASSIGN_OR_RETURN(const int64_t width, sides.RequiredInteger("width", 1, 4096));
  if (height != width) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("preprocessor_config.json.{}: expected equal sides", name));
  }
  return static_cast<int>(height);
}

Status ReadCanvases(const ProcessorSettings& settings, LlavaNextProcessor::Settings& out) {
  constexpr const char* kField = "image_grid_pinpoints";
  const JsonFields fields = settings.fields();
  ASSIGN_OR_RETURN(const json::Value::Array* given, fields.Array(kField));
  json::Value::Array usual;
  for (const auto& [height, width] :
       {std::pair{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}})
    usual.push_back(json::Value::Array{json::Value(height), json::Value(width)});
  for (const json::Value& canvas : given == nullptr ? usual : *given) {
    const auto is_side = [&](const json::Value& side) {
      return side.is_integer() && side.as_integer() >= out.tile &&
             side.as_integer() % out.tile == 0 && side.as_integer() <= int64_t{out.tile} * 16;
    };
    const bool is_pair = canvas.is_array() && canvas.as_array().size() == 2;
    if (!is_pair || !is_side(canvas.as_array()[0]) || !is_side(canvas.as_array()[1])) {
      return fields.Bad(kField, fmt::format("pairs of multiples of {}, height and width", out.tile),
                        canvas);
    }
    const auto rows = static_cast<int>(canvas.as_array()[0].as_integer() / out.tile);
    const auto columns = static_cast<int>(canvas.as_array()[1].as_integer() / out.tile);
    if (rows * columns > 16) return fields.Bad(kField, "at most 16 tiles", canvas);
    out.canvases.push_back({rows, columns});
  }
  if (out.canvases.empty()) return fields.Bad(kField, "at least one pair", json::Value(usual));
  return {};
}

}  // namespace

Result<std::unique_ptr<ImageProcessor>> CreateLlavaNextProcessor(const ProcessorInputs& inputs) {
  ASSIGN_OR_RETURN(const ProcessorSettings settings,
                   ProcessorSettings::Read(inputs, {"size", "crop_size", "do_center_crop", "do_pad",
                                                    "image_grid_pinpoints"}));
  LlavaNextProcessor::Settings out;
  ASSIGN_OR_RETURN(out.tile, ReadSquare(settings, "crop_size", 224));
  ASSIGN_OR_RETURN(const int size, ReadSquare(settings, "size", 224));
  if (size != out.tile) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("size {} and crop_size {} in preprocessor_config.json are not supported "
                    "with LLaVA-NeXT: expected equal ones",
                    size, out.tile));
  }
  RETURN_IF_ERROR(ReadCanvases(settings, out));
  ASSIGN_OR_RETURN(out.filter, settings.Filter(ResizeFilter::kBicubic));
  PixelTable::Settings pixels;
  pixels.mean = kClipMean;
  pixels.deviation = kClipDeviation;
  ASSIGN_OR_RETURN(out.pixels, settings.Pixels(pixels));
  if (inputs.processor.is_object()) {
    ASSIGN_OR_RETURN(
        const std::optional<int64_t> patch,
        JsonFields(inputs.processor, "processor_config.json.").Integer("patch_size", 1, 256));
    out.patch = static_cast<int>(patch.value_or(out.patch));
  }
  if (out.patch > out.tile) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("processor_config.json.patch_size: {} is more than a tile of {} pixels",
                            out.patch, out.tile));
  }
  ASSIGN_OR_RETURN(out.image, TokenOfConfig(inputs, "image_token_index", "image_token_id"));
  return std::make_unique<LlavaNextProcessor>(std::move(out));
}

}  // namespace sluice
