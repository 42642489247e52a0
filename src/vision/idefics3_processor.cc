// Idefics 3 and SmolVLM: enlarges a long image and divides it into tiles, followed by the whole
// image. Each tile is a separate input, and its marker names its row and column.
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "vision/processor_settings.h"
#include "vision/tile_grid.h"

namespace sluice {
namespace {

// transformers has markers for at most this many rows and columns.
constexpr int kMostMarkers = 6;

struct Sides {
  int64_t height = 0, width = 0;
};

class Idefics3Processor : public ImageProcessor {
 public:
  struct Settings {
    int longest_edge = 4 * 364;  // 0: use `size`
    Sides size;
    int tile = 364;
    bool splits = true;
    int tokens = 169;  // per tile
    ResizeFilter filter = ResizeFilter::kLanczos;
    PixelTable::Settings pixels;
    MarkerToken fake, image, global;
    std::vector<MarkerToken> places;  // [kMostMarkers, kMostMarkers]; id -1: none
  };

  explicit Idefics3Processor(Settings settings)
      : settings_(std::move(settings)), table_(settings_.pixels) {
    placeholder_ = settings_.image.text;
  }

  Result<ImageParts> Process(const Image& image) const override {
    const Sides first = FirstSize(image.width, image.height);
    const TileGrid grid = GridOf(first);
    RETURN_IF_ERROR(CheckGrid(image, grid));
    const int tile = settings_.tile;
    const Image resized = ResizeImage(image, static_cast<int>(first.width),
                                      static_cast<int>(first.height), settings_.filter);
    ImageParts parts;
    if (!settings_.splits || grid.rows * grid.columns == 1) {
      parts.push_back(Part(ResizeImage(resized, tile, tile, settings_.filter), settings_.global,
                           /*is_last=*/true));
      return parts;
    }
    const Image canvas =
        ResizeImage(resized, tile * grid.columns, tile * grid.rows, settings_.filter);
    for (int row = 0; row < grid.rows; ++row) {
      for (int column = 0; column < grid.columns; ++column) {
        const ImageRegion region{column * tile, row * tile, tile, tile};
        parts.push_back(Part(CropImage(canvas, region), Place(row, column), /*is_last=*/false));
      }
    }
    parts.push_back(Part(ResizeImage(canvas, tile, tile, settings_.filter), settings_.global,
                         /*is_last=*/true));
    return parts;
  }

  std::optional<int64_t> MemoryBytes(int width, int height) const override {
    const Sides first = FirstSize(width, height);
    const TileGrid grid = GridOf(first);
    if (!IsKnown(grid)) return std::nullopt;
    const int64_t tile = settings_.tile;
    const int64_t canvas_width = tile * grid.columns, canvas_height = tile * grid.rows;
    const int64_t units = int64_t{grid.rows} * grid.columns + 1;
    return units * (12 * tile * tile + 5LL * (settings_.tokens + 3) + 512) + 6 * tile * tile +
           ResizeBytes(width, height, first.width, first.height) +
           ResizeBytes(first.width, first.height, canvas_width, canvas_height) +
           ResizeBytes(canvas_width, canvas_height, tile, tile);
  }

  std::string Expansion(const ImageParts& parts) const override {
    std::string text;
    ptrdiff_t row = 0;
    std::vector<MarkerToken> known = settings_.places;
    known.insert(known.end(), {settings_.fake, settings_.image, settings_.global});
    for (const auto& part : parts) {
      // There is a line break between rows of tiles, and an empty line before the whole image.
      if (part->tokens[1] == settings_.global.id) {
        if (parts.size() > 1) text += "\n\n";
      } else {
        const auto place = std::ranges::find(settings_.places, part->tokens[1], &MarkerToken::id);
        const ptrdiff_t own = (place - settings_.places.begin()) / kMostMarkers;
        if (own != row) text += "\n";
        row = own;
      }
      text += TextOfTokens(*part, known);
    }
    return text;
  }

 private:
  // Keeps the aspect ratio, and rounds in the same order as transformers.
  Sides FirstSize(int64_t width, int64_t height) const {
    if (settings_.longest_edge == 0) return settings_.size;
    constexpr int64_t kMost = 4096;
    const auto keep = [](int64_t longest, Sides sides, bool is_even) {
      const double ratio = static_cast<double>(sides.width) / static_cast<double>(sides.height);
      Sides kept;
      if (sides.width >= sides.height) {
        kept = {static_cast<int64_t>(static_cast<double>(longest) / ratio), longest};
        if (is_even) kept.height += kept.height % 2;
      } else {
        kept = {longest, static_cast<int64_t>(static_cast<double>(longest) * ratio)};
        if (is_even) kept.width += kept.width % 2;
      }
      return Sides{std::max<int64_t>(kept.height, 1), std::max<int64_t>(kept.width, 1)};
    };
    const Sides sides = keep(settings_.longest_edge, {height, width}, true);
    return std::max(sides.height, sides.width) > kMost ? keep(kMost, sides, false) : sides;
  }

  // Rounds both sides up to whole tiles: first the longer side, then the other one according to the
  // aspect ratio.
  TileGrid GridOf(Sides sides) const {
    if (!settings_.splits) return {1, 1};
    const int64_t tile = settings_.tile;
    const double ratio = static_cast<double>(sides.width) / static_cast<double>(sides.height);
    const auto tiles = [tile](int64_t side) { return static_cast<int>((side + tile - 1) / tile); };
    TileGrid grid;
    if (sides.width >= sides.height) {
      grid.columns = tiles(sides.width);
      grid.rows = tiles(static_cast<int64_t>(static_cast<double>(grid.columns * tile) / ratio));
    } else {
      grid.rows = tiles(sides.height);
      grid.columns = tiles(static_cast<int64_t>(static_cast<double>(grid.rows * tile) * ratio));
    }
    return {std::max(grid.rows, 1), std::max(grid.columns, 1)};
  }

  bool IsKnown(const TileGrid& grid) const {
    if (grid.rows * grid.columns == 1) return true;
    return grid.rows <= kMostMarkers && grid.columns <= kMostMarkers &&
           Place(grid.rows - 1, grid.columns - 1).id >= 0;
  }

  Status CheckGrid(const Image& image, const TileGrid& grid) const {
    if (IsKnown(grid)) return {};
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("an image of {} x {} pixels becomes {} x {} tiles, for which the "
                            "model has no tokens",
                            image.width, image.height, grid.rows, grid.columns));
  }

  const MarkerToken& Place(int row, int column) const {
    return settings_.places[static_cast<size_t>(row) * kMostMarkers + static_cast<size_t>(column)];
  }

  std::shared_ptr<const ProcessedImage> Part(const Image& tile, const MarkerToken& marker,
                                             bool is_last) const {
    ProcessedImage out;
    out.shape = {1, 3, tile.height, tile.width};
    out.values.resize(3 * static_cast<size_t>(tile.height) * tile.width);
    table_.WritePlanes(tile, out.values.data());
    AppendTokens(out, settings_.fake.id, 1, false);
    AppendTokens(out, marker.id, 1, false);
    AppendTokens(out, settings_.image.id, settings_.tokens, true);
    if (is_last) AppendTokens(out, settings_.fake.id, 1, false);
    FinishImage(out);
    return std::make_shared<const ProcessedImage>(std::move(out));
  }

  Settings settings_;
  PixelTable table_;
};

Status ReadEdges(const ProcessorSettings& settings, Idefics3Processor::Settings& out) {
  const JsonFields fields = settings.fields();
  ASSIGN_OR_RETURN(const json::Value* size, fields.Object("size"));
  if (size != nullptr) {
    const JsonFields edges(*size, "preprocessor_config.json.size.");
    ASSIGN_OR_RETURN(const std::optional<int64_t> longest, edges.Integer("longest_edge", 1, 16384));
    out.longest_edge = static_cast<int>(longest.value_or(0));
    if (!longest) {
      ASSIGN_OR_RETURN(out.size.height, edges.RequiredInteger("height", 1, 8192));
      ASSIGN_OR_RETURN(out.size.width, edges.RequiredInteger("width", 1, 8192));
    }
  }
  ASSIGN_OR_RETURN(const json::Value* tile, fields.Object("max_image_size"));
  if (tile != nullptr) {
    ASSIGN_OR_RETURN(const int64_t longest,
                     JsonFields(*tile, "preprocessor_config.json.max_image_size.")
                         .RequiredInteger("longest_edge", 1, 4096));
    out.tile = static_cast<int>(longest);
  }
  return {};
}

Status ReadIdefics3Tokens(const ProcessorInputs& inputs, Idefics3Processor::Settings& out) {
  if (inputs.processor.is_object()) {
    ASSIGN_OR_RETURN(const std::optional<int64_t> tokens,
                     JsonFields(inputs.processor, "processor_config.json.")
                         .Integer("image_seq_len", 1, 1 << 16));
    out.tokens = static_cast<int>(tokens.value_or(out.tokens));
  }
  ASSIGN_OR_RETURN(out.image, TokenOfConfig(inputs, "image_token_id", "image_token_index"));
  ASSIGN_OR_RETURN(out.fake, TokenOfText(inputs, "<fake_token_around_image>"));
  ASSIGN_OR_RETURN(out.global, TokenOfText(inputs, "<global-img>"));
  for (int i = 0; i < kMostMarkers * kMostMarkers; ++i) {
    const std::string text =
        fmt::format("<row_{}_col_{}>", i / kMostMarkers + 1, i % kMostMarkers + 1);
    const std::optional<int32_t> id = inputs.token_id(text);
    out.places.push_back({id.value_or(-1), text});
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ImageProcessor>> CreateIdefics3Processor(const ProcessorInputs& inputs) {
  ASSIGN_OR_RETURN(const ProcessorSettings settings,
                   ProcessorSettings::Read(inputs, {"size", "max_image_size", "do_image_splitting",
                                                    "do_pad", "return_row_col_info"}));
  Idefics3Processor::Settings out;
  RETURN_IF_ERROR(ReadEdges(settings, out));
  ASSIGN_OR_RETURN(const std::optional<bool> splits, settings.fields().Bool("do_image_splitting"));
  out.splits = splits.value_or(true);
  ASSIGN_OR_RETURN(out.filter, settings.Filter(ResizeFilter::kLanczos));
  ASSIGN_OR_RETURN(out.pixels, settings.Pixels({}));
  RETURN_IF_ERROR(ReadIdefics3Tokens(inputs, out));
  return std::make_unique<Idefics3Processor>(std::move(out));
}

}  // namespace sluice
