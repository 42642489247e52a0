// InternVL: divides an image by the grid of tiles that is nearest to its aspect ratio, and adds the
// whole image.
#include <algorithm>
#include <cmath>
#include <utility>

#include "vision/processor_settings.h"
#include "vision/tile_grid.h"

namespace sluice {
namespace {

class InternVlProcessor : public ImageProcessor {
 public:
  struct Settings {
    int height = 384, width = 384;  // size of a tile in pixels
    bool crops = true;
    int min_tiles = 1, max_tiles = 12;
    int tokens = 256;  // per tile
    ResizeFilter filter = ResizeFilter::kBicubic;
    PixelTable::Settings pixels;
    MarkerToken start, image, end;
  };

  explicit InternVlProcessor(Settings settings)
      : settings_(std::move(settings)),
        grids_(TileGridsOf(settings_.min_tiles, settings_.max_tiles)),
        table_(settings_.pixels) {
    placeholder_ = settings_.image.text;
  }

  Result<ImageParts> Process(const Image& image) const override {
    const TileGrid grid = GridOf(image.width, image.height);
    const int tiles = grid.rows * grid.columns;
    const int units = tiles > 1 ? tiles + 1 : 1;
    const int height = settings_.height, width = settings_.width;
    ProcessedImage out;
    out.tiles = {grid.rows, grid.columns};
    out.shape = {units, 3, height, width};
    const size_t numbers = 3 * static_cast<size_t>(height) * width;
    out.values.resize(numbers * units);
    const Image resized =
        ResizeImage(image, width * grid.columns, height * grid.rows, settings_.filter);
    float* to = out.values.data();
    for (int i = 0; i < tiles; ++i, to += numbers) {
      const ImageRegion region{i % grid.columns * width, i / grid.columns * height, width, height};
      table_.WritePlanes(CropImage(resized, region), to);
    }
    if (tiles > 1) table_.WritePlanes(ResizeImage(image, width, height, settings_.filter), to);
    AppendTokens(out, settings_.start.id, 1, false);
    AppendTokens(out, settings_.image.id, int64_t{units} * settings_.tokens, true);
    AppendTokens(out, settings_.end.id, 1, false);
    FinishImage(out);
    ImageParts parts;
    parts.push_back(std::make_shared<const ProcessedImage>(std::move(out)));
    return parts;
  }

  std::optional<int64_t> MemoryBytes(int width, int height) const override {
    const TileGrid grid = GridOf(width, height);
    const int64_t units = int64_t{grid.rows} * grid.columns + 1;
    const int64_t pixels = int64_t{settings_.height} * settings_.width;
    return units * (12 * pixels + 5LL * (settings_.tokens + 2)) + 6 * pixels + 64 +
           3LL * width * height +
           ResizeBytes(width, height, int64_t{settings_.width} * grid.columns,
                       int64_t{settings_.height} * grid.rows) +
           ResizeBytes(width, height, settings_.width, settings_.height);
  }

  std::string Expansion(const ImageParts& parts) const override {
    return TextOfTokens(*parts.front(), {settings_.image, settings_.start, settings_.end});
  }

 private:
  TileGrid GridOf(int width, int height) const {
    if (!settings_.crops) return {1, 1};
    return ClosestTileGrid(grids_, width, height, int64_t{settings_.height} * settings_.width);
  }

  Settings settings_;
  std::vector<TileGrid> grids_;
  PixelTable table_;
};

}  // namespace

Result<std::unique_ptr<ImageProcessor>> CreateInternVlProcessor(const ProcessorInputs& inputs) {
  ASSIGN_OR_RETURN(
      const ProcessorSettings settings,
      ProcessorSettings::Read(inputs, {"size", "crop_to_patches", "min_patches", "max_patches"}));
  InternVlProcessor::Settings out;
  ASSIGN_OR_RETURN(const json::Value* size, settings.fields().Object("size"));
  if (size != nullptr) {
    const JsonFields sides(*size, "preprocessor_config.json.size.");
    ASSIGN_OR_RETURN(const int64_t height, sides.RequiredInteger("height", 1, 4096));
    ASSIGN_OR_RETURN(const int64_t width, sides.RequiredInteger("width", 1, 4096));
    out.height = static_cast<int>(height);
    out.width = static_cast<int>(width);
  }
  // transformers' processor for text and images always requests tiles, so the file's setting is
  // ignored.
  if (settings.IsOverridden("crop_to_patches")) {
    ASSIGN_OR_RETURN(const std::optional<bool> crops, settings.fields().Bool("crop_to_patches"));
    out.crops = crops.value_or(true);
  }
  ASSIGN_OR_RETURN(out.min_tiles, settings.Size("min_patches", 1));
  ASSIGN_OR_RETURN(out.max_tiles, settings.Size("max_patches", 12));
  RETURN_IF_ERROR(CheckTileCounts(out.min_tiles, out.max_tiles, "min_patches", "max_patches"));
  if (inputs.processor.is_object()) {
    ASSIGN_OR_RETURN(const std::optional<int64_t> tokens,
                     JsonFields(inputs.processor, "processor_config.json.")
                         .Integer("image_seq_length", 1, 1 << 16));
    out.tokens = static_cast<int>(tokens.value_or(out.tokens));
  }
  ASSIGN_OR_RETURN(out.filter, settings.Filter(ResizeFilter::kBicubic));
  PixelTable::Settings pixels;
  pixels.mean = kClipMean;
  pixels.deviation = kClipDeviation;
  ASSIGN_OR_RETURN(out.pixels, settings.Pixels(pixels));
  ASSIGN_OR_RETURN(out.image, TokenOfConfig(inputs, "image_token_id", "image_token_index"));
  ASSIGN_OR_RETURN(out.start, TokenOfText(inputs, "<img>"));
  ASSIGN_OR_RETURN(out.end, TokenOfText(inputs, "</img>"));
  return std::make_unique<InternVlProcessor>(std::move(out));
}

}  // namespace sluice
