// InternVL and Aya Vision: divides an image by the grid of tiles that is nearest to its aspect
// ratio, and adds the whole image.
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "vision/processor_settings.h"
#include "vision/tile_grid.h"

namespace sluice {
namespace {

// Settings of both families.
struct TileSettings {
  int height = 384, width = 384;  // size of a tile in pixels
  bool crops = true;
  int min_tiles = 1, max_tiles = 12;
  int tokens = 256;  // per tile
  ResizeFilter filter = ResizeFilter::kBicubic;
  PixelTable::Settings pixels;
  MarkerToken start, image, end;
};

class TileProcessor : public ImageProcessor {
 public:
  explicit TileProcessor(TileSettings settings)
      : settings_(std::move(settings)),
        grids_(TileGridsOf(settings_.min_tiles, settings_.max_tiles)),
        table_(settings_.pixels) {}

  std::optional<int64_t> MemoryBytes(int width, int height) const override {
    const TileGrid grid = GridOf(width, height);
    const int64_t units = int64_t{grid.rows} * grid.columns + 1;
    const int64_t pixels = int64_t{settings_.height} * settings_.width;
    return units * (12 * pixels + 5LL * (settings_.tokens + 2) + 512) + 6 * pixels + 64 +
           3LL * width * height +
           ResizeBytes(width, height, int64_t{settings_.width} * grid.columns,
                       int64_t{settings_.height} * grid.rows) +
           ResizeBytes(width, height, settings_.width, settings_.height);
  }

 protected:
  static int64_t NumUnits(const TileGrid& grid) {
    const int64_t tiles = int64_t{grid.rows} * grid.columns;
    return tiles > 1 ? tiles + 1 : 1;
  }
  // Returns the number of values of one tile.
  size_t TileNumbers() const { return 3 * static_cast<size_t>(settings_.height) * settings_.width; }
  // Calls write(tile) for each tile, row by row, and then, if there are several, for the whole
  // image as a tile.
  template <typename Write>
  void VisitTiles(const Image& image, const TileGrid& grid, const Write& write) const {
    const int height = settings_.height, width = settings_.width;
    const Image resized =
        ResizeImage(image, width * grid.columns, height * grid.rows, settings_.filter);
    const int tiles = grid.rows * grid.columns;
    for (int i = 0; i < tiles; ++i) {
      const ImageRegion region{i % grid.columns * width, i / grid.columns * height, width, height};
      write(CropImage(resized, region));
    }
    if (tiles > 1) write(ResizeImage(image, width, height, settings_.filter));
  }

  TileGrid GridOf(int width, int height) const {
    if (!settings_.crops) return {1, 1};
    return ClosestTileGrid(grids_, width, height, int64_t{settings_.height} * settings_.width);
  }

  const TileSettings settings_;
  const std::vector<TileGrid> grids_;
  const PixelTable table_;
};

// All tiles are one input, without text between them.
class InternVlProcessor : public TileProcessor {
 public:
  explicit InternVlProcessor(TileSettings settings) : TileProcessor(std::move(settings)) {
    placeholder_ = settings_.image.text;
  }

  Result<ImageParts> Process(const Image& image) const override {
    const TileGrid grid = GridOf(image.width, image.height);
    const int64_t units = NumUnits(grid);
    ProcessedImage out;
    out.tiles = {grid.rows, grid.columns};
    out.shape = {units, 3, settings_.height, settings_.width};
    out.values.resize(TileNumbers() * static_cast<size_t>(units));
    float* to = out.values.data();
    VisitTiles(image, grid, [&](const Image& tile) {
      table_.WritePlanes(tile, to);
      to += TileNumbers();
    });
    AppendTokens(out, settings_.start.id, 1, false);
    AppendTokens(out, settings_.image.id, units * settings_.tokens, true);
    AppendTokens(out, settings_.end.id, 1, false);
    FinishImage(out);
    ImageParts parts;
    parts.push_back(std::make_shared<const ProcessedImage>(std::move(out)));
    return parts;
  }

  std::string Expansion(const ImageParts& parts) const override {
    return TextOfTokens(*parts.front(), {settings_.image, settings_.start, settings_.end});
  }
};

// Each tile is a separate input, preceded by its number as text.
class AyaProcessor : public TileProcessor {
 public:
  AyaProcessor(TileSettings settings, std::string placeholder)
      : TileProcessor(std::move(settings)) {
    placeholder_ = std::move(placeholder);
  }

  Result<ImageParts> Process(const Image& image) const override {
    ImageParts parts;
    VisitTiles(image, GridOf(image.width, image.height), [&](const Image& tile) {
      ProcessedImage out;
      out.shape = {1, 3, settings_.height, settings_.width};
      out.values.resize(TileNumbers());
      table_.WritePlanes(tile, out.values.data());
      AppendTokens(out, settings_.image.id, settings_.tokens, true);
      FinishImage(out);
      parts.push_back(std::make_shared<const ProcessedImage>(std::move(out)));
    });
    return parts;
  }

  std::string Expansion(const ImageParts& parts) const override {
    std::string text = settings_.start.text;
    for (size_t i = 0; i < parts.size(); ++i) {
      text += i + 1 < parts.size() ? fmt::format("TILE_{}", i + 1) : "TILE_GLOBAL";
      text += TextOfTokens(*parts[i], {settings_.image});
    }
    return text + settings_.end.text;
  }
};

// Reads everything but the tokens.
Result<TileSettings> ReadTiles(const ProcessorInputs& inputs) {
  ASSIGN_OR_RETURN(
      const ProcessorSettings settings,
      ProcessorSettings::Read(inputs, {"size", "crop_to_patches", "min_patches", "max_patches"}));
  TileSettings out;
  ASSIGN_OR_RETURN(const json::Value* size, settings.fields().Object("size"));
  if (size != nullptr) {
    const JsonFields sides(*size, "preprocessor_config.json.size.");
    ASSIGN_OR_RETURN(const int64_t height, sides.RequiredInteger("height", 1, 4096));
    ASSIGN_OR_RETURN(const int64_t width, sides.RequiredInteger("width", 1, 4096));
    out.height = static_cast<int>(height);
    out.width = static_cast<int>(width);
  }
  // transformers' processors for text and images always request tiles, so the file's setting is
  // ignored.
  if (settings.IsOverridden("crop_to_patches")) {
    ASSIGN_OR_RETURN(const std::optional<bool> crops, settings.fields().Bool("crop_to_patches"));
    out.crops = crops.value_or(true);
  }
  ASSIGN_OR_RETURN(out.min_tiles, settings.Size("min_patches", 1));
  ASSIGN_OR_RETURN(out.max_tiles, settings.Size("max_patches", 12));
  RETURN_IF_ERROR(CheckTileCounts(out.min_tiles, out.max_tiles, "min_patches", "max_patches"));
  ASSIGN_OR_RETURN(out.filter, settings.Filter(ResizeFilter::kBicubic));
  PixelTable::Settings pixels;
  pixels.mean = kClipMean;
  pixels.deviation = kClipDeviation;
  ASSIGN_OR_RETURN(out.pixels, settings.Pixels(pixels));
  return out;
}

}  // namespace

Result<std::unique_ptr<ImageProcessor>> CreateInternVlProcessor(const ProcessorInputs& inputs) {
  ASSIGN_OR_RETURN(TileSettings out, ReadTiles(inputs));
  if (inputs.processor.is_object()) {
    ASSIGN_OR_RETURN(const std::optional<int64_t> tokens,
                     JsonFields(inputs.processor, "processor_config.json.")
                         .Integer("image_seq_length", 1, 1 << 16));
    out.tokens = static_cast<int>(tokens.value_or(out.tokens));
  }
  ASSIGN_OR_RETURN(out.image, TokenOfConfig(inputs, "image_token_id", "image_token_index"));
  ASSIGN_OR_RETURN(out.start, TokenOfText(inputs, "<img>"));
  ASSIGN_OR_RETURN(out.end, TokenOfText(inputs, "</img>"));
  return std::make_unique<InternVlProcessor>(std::move(out));
}

Result<std::unique_ptr<ImageProcessor>> CreateAyaProcessor(const ProcessorInputs& inputs) {
  ASSIGN_OR_RETURN(TileSettings out, ReadTiles(inputs));
  int64_t pixels = 364, patch = 28, factor = 1;
  std::string placeholder = "<image>";
  if (inputs.processor.is_object()) {
    const JsonFields fields(inputs.processor, "processor_config.json.");
    ASSIGN_OR_RETURN(const std::optional<int64_t> given, fields.Integer("img_size", 1, 4096));
    ASSIGN_OR_RETURN(const std::optional<int64_t> given_patch,
                     fields.Integer("patch_size", 1, 4096));
    ASSIGN_OR_RETURN(const std::optional<int64_t> given_factor,
                     fields.Integer("downsample_factor", 1, 64));
    ASSIGN_OR_RETURN(const std::optional<std::string> token, fields.String("image_token"));
    pixels = given.value_or(pixels);
    patch = given_patch.value_or(patch);
    factor = given_factor.value_or(factor);
    placeholder = token.value_or(placeholder);
  }
  const int64_t side = pixels / (patch * factor);
  if (side < 1 || placeholder.empty()) {
    return Fail(
        ErrorCode::kInvalidData,
        fmt::format("processor_config.json: img_size {} with patches of {} has no token, or "
                    "image_token is empty",
                    pixels, patch * factor));
  }
  out.tokens = static_cast<int>(side * side);
  ASSIGN_OR_RETURN(out.image, TokenOfConfig(inputs, "image_token_index", "image_token_id"));
  ASSIGN_OR_RETURN(out.start, TokenOfText(inputs, "<|START_OF_IMG|>"));
  ASSIGN_OR_RETURN(out.end, TokenOfText(inputs, "<|END_OF_IMG|>"));
  return std::make_unique<AyaProcessor>(std::move(out), std::move(placeholder));
}

}  // namespace sluice
