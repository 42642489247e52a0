// LFM2-VL: rounds sides to merged patches. A large image becomes tiles, each a separate input,
// followed by the whole image in the size that it would have without tiles.
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "vision/processor_settings.h"
#include "vision/tile_grid.h"

namespace sluice {
namespace {

class Lfm2VlProcessor : public ImageProcessor {
 public:
  struct Settings {
    int merge = 2, patch = 16, tile = 512;
    int min_tiles = 2, max_tiles = 10;
    int min_tokens = 64, max_tokens = 256;
    double tolerance = 2;
    bool has_thumbnail = true;
    ResizeFilter filter = ResizeFilter::kBilinear;
    PixelTable::Settings pixels;
    MarkerToken image;
    bool has_markers = true;
    MarkerToken start, end, thumbnail;
    std::vector<MarkerToken> places;  // [max_tiles, max_tiles]; id -1 if the vocabulary lacks it
  };

  explicit Lfm2VlProcessor(Settings settings)
      : settings_(std::move(settings)),
        grids_(TileGridsOf(settings_.min_tiles, settings_.max_tiles)),
        table_(settings_.pixels) {
    placeholder_ = settings_.image.text;
  }

  Result<ImageParts> Process(const Image& image) const override {
    const Plan plan = PlanOf(image.width, image.height);
    if (!Takes(plan)) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("an image of {} x {} pixels cannot be resized to {} x {}, or to {} x "
                              "{} tiles",
                              image.width, image.height, plan.width, plan.height, plan.grid.rows,
                              plan.grid.columns));
    }
    ImageParts parts;
    const int columns = plan.grid.columns, tiles = plan.grid.rows * columns;
    const bool has_whole = tiles == 1 || settings_.has_thumbnail;
    if (tiles > 1) {
      const int tile = settings_.tile;
      const Image canvas =
          ResizeImage(image, tile * columns, tile * plan.grid.rows, settings_.filter);
      for (int i = 0; i < tiles; ++i) {
        const ImageRegion region{i % columns * tile, i / columns * tile, tile, tile};
        parts.push_back(Part(CropImage(canvas, region), &Place(i / columns, i % columns), i == 0,
                             i + 1 == tiles && !has_whole));
      }
    }
    if (has_whole) {
      parts.push_back(Part(ResizeImage(image, plan.width, plan.height, settings_.filter),
                           tiles > 1 ? &settings_.thumbnail : nullptr, tiles == 1, true));
    }
    return parts;
  }

  std::optional<int64_t> MemoryBytes(int width, int height) const override {
    const Plan plan = PlanOf(width, height);
    if (!Takes(plan)) return std::nullopt;
    const int64_t tile = settings_.tile;
    const int64_t across = tile * plan.grid.columns, down = tile * plan.grid.rows;
    const int64_t pixels = across * down + int64_t{plan.width} * plan.height;
    const int64_t units = int64_t{plan.grid.rows} * plan.grid.columns + 1;
    return 18 * pixels + 5 * pixels / (int64_t{settings_.patch} * settings_.patch) + 512 * units +
           3 * tile * tile + 3LL * width * height + ResizeBytes(width, height, across, down) +
           ResizeBytes(width, height, plan.width, plan.height);
  }

  std::string Expansion(const ImageParts& parts) const override {
    std::vector<MarkerToken> known = settings_.places;
    known.insert(known.end(),
                 {settings_.image, settings_.start, settings_.end, settings_.thumbnail});
    std::string text;
    for (const auto& part : parts) text += TextOfTokens(*part, known);
    return text;
  }

 private:
  struct Plan {
    TileGrid grid;
    int height = 0, width = 0;  // size of the whole image in pixels
  };

  Plan PlanOf(int width, int height) const {
    const int factor = settings_.patch * settings_.merge;
    const auto round = [factor](int side) {  // rounds half to even
      return static_cast<int64_t>(std::nearbyint(static_cast<double>(side) / factor)) * factor;
    };
    const int64_t token_pixels = int64_t{factor} * factor;
    const int64_t least = settings_.min_tokens * token_pixels;
    const int64_t most = settings_.max_tokens * token_pixels;
    int64_t new_height = std::max<int64_t>(factor, round(height));
    int64_t new_width = std::max<int64_t>(factor, round(width));
    const double exact = static_cast<double>(height) * width;
    if (new_height * new_width > most) {
      const double beta = std::sqrt(exact / static_cast<double>(most));
      const auto shrink = [&](int side) {
        return std::max<int64_t>(factor,
                                 static_cast<int64_t>(std::floor(side / beta / factor)) * factor);
      };
      new_height = shrink(height);
      new_width = shrink(width);
    } else if (new_height * new_width < least) {
      const double beta = std::sqrt(static_cast<double>(least) / exact);
      const auto grow = [&](int side) {
        return static_cast<int64_t>(std::ceil(side * beta / factor)) * factor;
      };
      new_height = grow(height);
      new_width = grow(width);
    }
    Plan plan{.grid = {},
              .height = static_cast<int>(std::min<int64_t>(new_height, INT32_MAX)),
              .width = static_cast<int>(std::min<int64_t>(new_width, INT32_MAX))};
    const int64_t rounded = std::max<int64_t>(settings_.patch, round(height)) *
                            std::max<int64_t>(settings_.patch, round(width));
    const bool is_large =
        static_cast<double>(rounded) > static_cast<double>(most) * settings_.tolerance;
    if (is_large && settings_.max_tiles > 1) {
      plan.grid = ClosestTileGrid(grids_, width, height, int64_t{settings_.tile} * settings_.tile);
    }
    return plan;
  }

  bool Takes(const Plan& plan) const {
    if (int64_t{plan.width} * plan.height > kMaxProcessedPixels) return false;
    if (plan.grid.rows * plan.grid.columns == 1) return true;
    // This follows transformers, which pads tiles and the whole image to the same length.
    const int64_t patches = int64_t{plan.width / settings_.patch} * (plan.height / settings_.patch);
    const int64_t tile_side = settings_.tile / settings_.patch;
    const int64_t merged = int64_t{settings_.merge} * settings_.merge;
    if (settings_.has_thumbnail &&
        patches > std::max(settings_.max_tokens * merged, tile_side * tile_side))
      return false;
    if (!settings_.has_markers) return true;
    return Place(plan.grid.rows - 1, plan.grid.columns - 1).id >= 0;
  }

  const MarkerToken& Place(int row, int column) const {
    return settings_
        .places[static_cast<size_t>(row) * settings_.max_tiles + static_cast<size_t>(column)];
  }

  std::shared_ptr<const ProcessedImage> Part(const Image& tile, const MarkerToken* marker,
                                             bool is_first, bool is_last) const {
    ProcessedImage out;
    const int patch = settings_.patch;
    out.grid = {1, tile.height / patch, tile.width / patch};
    const int64_t patches = int64_t{out.grid[1]} * out.grid[2];
    out.shape = {patches, int64_t{patch} * patch * 3};
    out.values.resize(static_cast<size_t>(patches * patch * patch * 3));
    WriteChannelLastPatches(tile, table_, patch, out.values.data());
    const bool has_markers = settings_.has_markers;
    if (is_first && has_markers) AppendTokens(out, settings_.start.id, 1, false);
    if (marker != nullptr && has_markers) AppendTokens(out, marker->id, 1, false);
    AppendTokens(out, settings_.image.id, patches / (int64_t{settings_.merge} * settings_.merge),
                 true);
    if (is_last && has_markers) AppendTokens(out, settings_.end.id, 1, false);
    FinishImage(out);
    return std::make_shared<const ProcessedImage>(std::move(out));
  }

  Settings settings_;
  std::vector<TileGrid> grids_;
  PixelTable table_;
};

Status ReadLfm2VlSizes(const ProcessorSettings& settings, Lfm2VlProcessor::Settings& out) {
  ASSIGN_OR_RETURN(out.merge, settings.Size("downsample_factor", 2));
  ASSIGN_OR_RETURN(out.patch, settings.Size("encoder_patch_size", 16));
  ASSIGN_OR_RETURN(out.tile, settings.Size("tile_size", 512));
  ASSIGN_OR_RETURN(out.min_tiles, settings.Size("min_tiles", 2));
  ASSIGN_OR_RETURN(out.max_tiles, settings.Size("max_tiles", 10));
  ASSIGN_OR_RETURN(out.min_tokens, settings.Size("min_image_tokens", 64));
  ASSIGN_OR_RETURN(out.max_tokens, settings.Size("max_image_tokens", 256));
  ASSIGN_OR_RETURN(const std::optional<double> tolerance,
                   settings.fields().Number("max_pixels_tolerance", 0, 1e6));
  ASSIGN_OR_RETURN(const std::optional<bool> thumbnail, settings.fields().Bool("use_thumbnail"));
  ASSIGN_OR_RETURN(const std::optional<bool> splits, settings.fields().Bool("do_image_splitting"));
  out.tolerance = tolerance.value_or(out.tolerance);
  out.has_thumbnail = thumbnail.value_or(true);
  if (splits == false) out.min_tiles = out.max_tiles = 1;
  RETURN_IF_ERROR(CheckTileCounts(out.min_tiles, out.max_tiles, "min_tiles", "max_tiles"));
  const int factor = out.merge * out.patch;
  if (out.merge > 16 || out.patch > 256 || out.tile > 4096 || out.tile % factor != 0) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("tile_size {}, encoder_patch_size {} or downsample_factor {} in "
                            "preprocessor_config.json: expected tiles of whole merged patches, at "
                            "most 4096, 256 and 16",
                            out.tile, out.patch, out.merge));
  }
  if (out.min_tokens > 1 << 16 || out.max_tokens > 1 << 16) {
    return Fail(ErrorCode::kUnsupported,
                "min_image_tokens or max_image_tokens in preprocessor_config.json above 65536");
  }
  return {};
}

Status ReadLfm2VlTokens(const ProcessorInputs& inputs, Lfm2VlProcessor::Settings& out) {
  ASSIGN_OR_RETURN(out.image, TokenOfConfig(inputs, "image_token_id", "image_token_index"));
  if (inputs.processor.is_object()) {
    ASSIGN_OR_RETURN(
        const std::optional<bool> markers,
        JsonFields(inputs.processor, "processor_config.json.").Bool("use_image_special_tokens"));
    out.has_markers = markers.value_or(true);
  }
  if (!out.has_markers) {
    out.start = out.end = out.thumbnail = MarkerToken{.id = -1, .text = ""};
    out.places.assign(static_cast<size_t>(out.max_tiles) * out.max_tiles, out.start);
    return {};
  }
  ASSIGN_OR_RETURN(out.start, TokenOfText(inputs, "<|image_start|>"));
  ASSIGN_OR_RETURN(out.end, TokenOfText(inputs, "<|image_end|>"));
  ASSIGN_OR_RETURN(out.thumbnail, TokenOfText(inputs, "<|img_thumbnail|>"));
  for (int row = 0; row < out.max_tiles; ++row) {
    for (int column = 0; column < out.max_tiles; ++column) {
      const std::string text = fmt::format("<|img_row_{}_col_{}|>", row + 1, column + 1);
      // A vocabulary has markers only for places that grids may need.
      const bool is_needed = (row + 1) * (column + 1) <= out.max_tiles;
      out.places.push_back({is_needed ? inputs.token_id(text).value_or(-1) : -1, text});
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ImageProcessor>> CreateLfm2VlProcessor(const ProcessorInputs& inputs) {
  ASSIGN_OR_RETURN(
      const ProcessorSettings settings,
      ProcessorSettings::Read(
          inputs, {"size", "downsample_factor", "do_image_splitting", "min_tiles", "max_tiles",
                   "use_thumbnail", "min_image_tokens", "max_image_tokens", "encoder_patch_size",
                   "tile_size", "max_pixels_tolerance", "do_pad", "return_row_col_info"}));
  Lfm2VlProcessor::Settings out;
  RETURN_IF_ERROR(ReadLfm2VlSizes(settings, out));
  ASSIGN_OR_RETURN(out.filter, settings.Filter(ResizeFilter::kBilinear));
  ASSIGN_OR_RETURN(out.pixels, settings.Pixels({}));
  RETURN_IF_ERROR(ReadLfm2VlTokens(inputs, out));
  return std::make_unique<Lfm2VlProcessor>(std::move(out));
}

}  // namespace sluice
