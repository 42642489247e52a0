// Llama 4: scales an image to fit the canvas of tiles that preserves most of it, cuts the canvas
// into tiles, and adds the whole image scaled to one tile.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "vision/processor_settings.h"

namespace sluice {
namespace {

// A number in torch's precision: float32 if it comes from a tensor, else float64. The difference
// can change the length of a side by one pixel.
struct MixedNumber {
  double value = 0;
  bool is_single = false;
};

MixedNumber Divide(MixedNumber a, int b) {
  if (a.is_single)
    return {static_cast<double>(static_cast<float>(a.value) / static_cast<float>(b)), true};
  return {a.value / b, false};
}

bool IsLess(MixedNumber a, MixedNumber b) {
  if (a.is_single || b.is_single) return static_cast<float>(a.value) < static_cast<float>(b.value);
  return a.value < b.value;
}

int FloorOfProduct(int side, MixedNumber scale) {
  const double product =
      scale.is_single
          ? static_cast<double>(static_cast<float>(side) * static_cast<float>(scale.value))
          : side * scale.value;
  return static_cast<int>(std::floor(product));
}

struct TileSize {
  int height = 0;  // size in tiles, or in pixels
  int width = 0;
};

// Returns canvases of at most `most` tiles in the reference's order: grouped by ratio, in the order
// in which ratios first occur when counting tiles down from `most`.
std::vector<TileSize> CanvasesOf(int most) {
  std::vector<std::pair<double, std::vector<TileSize>>> by_ratio;
  for (int tiles = most; tiles > 0; --tiles) {
    for (int height = 1; height <= tiles; ++height) {
      if (tiles % height != 0) continue;
      const TileSize canvas{height, tiles / height};
      const double ratio = static_cast<double>(canvas.height) / canvas.width;
      auto found =
          std::ranges::find(by_ratio, ratio, &std::pair<double, std::vector<TileSize>>::first);
      if (found == by_ratio.end()) found = by_ratio.insert(found, {ratio, {}});
      found->second.push_back(canvas);
    }
  }
  std::vector<TileSize> canvases;
  for (const auto& [ratio, group] : by_ratio)
    canvases.insert(canvases.end(), group.begin(), group.end());
  return canvases;
}

class Llama4Processor : public ImageProcessor {
 public:
  struct Settings {
    int tile = 336;  // pixels of a side
    int max_tiles = 16;
    bool to_max_canvas = false;
    int patches = 24;  // number of patches per side of a tile, before pixel shuffle
    int tokens_per_tile = 144;
    ResizeFilter filter = ResizeFilter::kBilinear;
    PixelTable::Settings pixels;
    MarkerToken start, end, image, patch, across, down;
  };

  explicit Llama4Processor(Settings settings)
      : settings_(std::move(settings)),
        canvases_(CanvasesOf(settings_.max_tiles)),
        table_(settings_.pixels) {
    placeholder_ = settings_.image.text;
  }

  Result<ImageParts> Process(const Image& image) const override {
    const TileSize canvas = BestCanvas(image.width, image.height);
    const TileSize size = SizeOnCanvas(image.width, image.height, canvas);
    const int tiles = canvas.height * canvas.width;
    const int tile = settings_.tile;
    ProcessedImage out;
    out.tiles = {canvas.height, canvas.width};
    out.shape = {tiles > 1 ? tiles + 1 : 1, 3, tile, tile};
    out.grid = {1, settings_.patches, settings_.patches};
    const size_t tile_values = 3 * static_cast<size_t>(tile) * tile;
    out.values.resize(tile_values * out.shape[0]);
    const Image resized = ResizeImage(image, size.width, size.height, settings_.filter);
    float* to = out.values.data();
    for (int i = 0; i < tiles; ++i, to += tile_values) {
      table_.WritePlanes(TileOf(resized, i / canvas.width * tile, i % canvas.width * tile), to);
    }
    if (tiles > 1) table_.WritePlanes(ResizeImage(image, tile, tile, settings_.filter), to);
    AppendPrompt(canvas, out);
    FinishImage(out);
    ImageParts parts;
    parts.push_back(std::make_shared<const ProcessedImage>(std::move(out)));
    return parts;
  }

  std::optional<int64_t> MemoryBytes(int width, int height) const override {
    const TileSize canvas = BestCanvas(width, height);
    const TileSize size = SizeOnCanvas(width, height, canvas);
    const int64_t tiles = int64_t{canvas.height} * canvas.width + 1;
    const int64_t pixels = int64_t{settings_.tile} * settings_.tile;
    return tiles * (12 * pixels + 5 * (settings_.tokens_per_tile + 4)) + 3 * pixels +
           ResizeBytes(width, height, size.width, size.height) +
           ResizeBytes(width, height, settings_.tile, settings_.tile);
  }

  std::string Expansion(const ImageParts& parts) const override {
    return TextOfTokens(*parts.front(), {settings_.patch, settings_.across, settings_.down,
                                         settings_.start, settings_.end, settings_.image});
  }

 private:
  // Returns the canvas, in tiles, that enlarges the image least or, if all canvases shrink it,
  // shrinks it least.
  TileSize BestCanvas(int width, int height) const {
    std::vector<float> scales;
    float chosen = 0;
    bool enlarges = false;
    for (const TileSize& canvas : canvases_) {
      const float across =
          static_cast<float>(canvas.width * settings_.tile) / static_cast<float>(width);
      const float down =
          static_cast<float>(canvas.height * settings_.tile) / static_cast<float>(height);
      const float scale = down > across ? across : down;
      scales.push_back(scale);
      if (scale >= 1 &&
          (!enlarges || (settings_.to_max_canvas ? scale > chosen : scale < chosen))) {
        chosen = scale;
        enlarges = true;
      }
      if (scale < 1 && !enlarges) chosen = std::max(chosen, scale);
    }
    const TileSize* best = nullptr;
    for (size_t i = 0; i < canvases_.size(); ++i) {
      const TileSize& canvas = canvases_[i];
      if (scales[i] == chosen &&
          (best == nullptr || canvas.height * canvas.width < best->height * best->width))
        best = &canvas;
    }
    CHECK(best != nullptr);
    return *best;
  }

  // Returns the image's size on the canvas in pixels, at least 1, without distortion. Images are
  // enlarged beyond one tile only with to_max_canvas.
  TileSize SizeOnCanvas(int width, int height, TileSize canvas) const {
    const MixedNumber target_height = Limit(height, canvas.height * settings_.tile);
    const MixedNumber target_width = Limit(width, canvas.width * settings_.tile);
    const MixedNumber across = Divide(target_width, width);
    const MixedNumber down = Divide(target_height, height);
    TileSize size;
    if (IsLess(across, down)) {
      size.width = static_cast<int>(target_width.value);
      size.height = std::min(FloorOfProduct(height, across), static_cast<int>(target_height.value));
    } else {
      size.height = static_cast<int>(target_height.value);
      size.width = std::min(FloorOfProduct(width, down), static_cast<int>(target_width.value));
    }
    return {std::max(size.height, 1), std::max(size.width, 1)};
  }

  // The result is a float32 number only if it is the canvas, which is a tensor in the reference.
  MixedNumber Limit(int side, int canvas) const {
    if (settings_.to_max_canvas) return {static_cast<double>(canvas), true};
    const int wanted = std::max(side, settings_.tile);
    return canvas < wanted ? MixedNumber{static_cast<double>(canvas), true}
                           : MixedNumber{static_cast<double>(wanted), false};
  }

  // Returns one tile of the canvas, which is black outside the image.
  Image TileOf(const Image& image, int top, int left) const {
    const int tile = settings_.tile;
    Image out{tile, tile, std::vector<uint8_t>(3 * static_cast<size_t>(tile) * tile, 0)};
    const int columns = std::clamp(image.width - left, 0, tile);
    for (int y = 0; y < std::clamp(image.height - top, 0, tile) && columns > 0; ++y) {
      std::copy_n(image.row(top + y) + 3 * static_cast<size_t>(left),
                  3 * static_cast<size_t>(columns),
                  out.rgb.data() + 3 * static_cast<size_t>(tile) * y);
    }
    return out;
  }

  void AppendPrompt(TileSize canvas, ProcessedImage& out) const {
    AppendTokens(out, settings_.start.id, 1, false);
    for (int row = 0; canvas.height * canvas.width > 1 && row < canvas.height; ++row) {
      for (int column = 0; column < canvas.width; ++column) {
        AppendTokens(out, settings_.patch.id, settings_.tokens_per_tile, true);
        if (column + 1 < canvas.width) AppendTokens(out, settings_.across.id, 1, false);
      }
      AppendTokens(out, settings_.down.id, 1, false);
    }
    AppendTokens(out, settings_.image.id, 1, false);
    AppendTokens(out, settings_.patch.id, settings_.tokens_per_tile, true);
    AppendTokens(out, settings_.end.id, 1, false);
  }

  Settings settings_;
  std::vector<TileSize> canvases_;
  PixelTable table_;
};

Status ReadLlama4Tokens(const ProcessorInputs& inputs, Llama4Processor::Settings& out) {
  ASSIGN_OR_RETURN(out.start, TokenOfText(inputs, "<|image_start|>"));
  ASSIGN_OR_RETURN(out.end, TokenOfText(inputs, "<|image_end|>"));
  ASSIGN_OR_RETURN(out.image, TokenOfText(inputs, "<|image|>"));
  ASSIGN_OR_RETURN(out.patch, TokenOfText(inputs, "<|patch|>"));
  ASSIGN_OR_RETURN(out.across, TokenOfText(inputs, "<|tile_x_separator|>"));
  ASSIGN_OR_RETURN(out.down, TokenOfText(inputs, "<|tile_y_separator|>"));
  return {};
}

}  // namespace

Result<std::unique_ptr<ImageProcessor>> CreateLlama4Processor(const ProcessorInputs& inputs) {
  ASSIGN_OR_RETURN(
      const ProcessorSettings settings,
      ProcessorSettings::Read(inputs, {"size", "max_patches", "resize_to_max_canvas"}));
  Llama4Processor::Settings out;
  ASSIGN_OR_RETURN(const json::Value* size, settings.fields().Object("size"));
  if (size != nullptr) {
    const JsonFields sides(*size, "preprocessor_config.json.size.");
    ASSIGN_OR_RETURN(const int64_t height, sides.RequiredInteger("height", 1, 4096));
    ASSIGN_OR_RETURN(const int64_t width, sides.RequiredInteger("width", 1, 4096));
    if (height != width)
      return Fail(ErrorCode::kInvalidData,
                  "preprocessor_config.json.size: expected a square, since tiles are square");
    out.tile = static_cast<int>(height);
  }
  ASSIGN_OR_RETURN(out.max_tiles, settings.Size("max_patches", 16));
  if (out.max_tiles > 256)
    return Fail(ErrorCode::kUnsupported, "preprocessor_config.json.max_patches: at most 256 tiles");
  ASSIGN_OR_RETURN(const std::optional<bool> to_max,
                   settings.fields().Bool("resize_to_max_canvas"));
  out.to_max_canvas = to_max.value_or(false);
  ASSIGN_OR_RETURN(out.filter, settings.Filter(ResizeFilter::kBilinear));
  PixelTable::Settings pixels;
  ASSIGN_OR_RETURN(out.pixels, settings.Pixels(pixels));
  out.pixels.in_bfloat16 = out.pixels.rescale && out.pixels.normalize;
  int64_t patch = 14;
  double ratio = 0.5;
  if (inputs.processor.is_object()) {
    const JsonFields fields(inputs.processor, "processor_config.json.");
    ASSIGN_OR_RETURN(const std::optional<int64_t> given_patch,
                     fields.Integer("patch_size", 1, 4096));
    ASSIGN_OR_RETURN(const std::optional<double> given_ratio,
                     fields.Number("pixel_shuffle_ratio", 0.01, 1));
    patch = given_patch.value_or(patch);
    ratio = given_ratio.value_or(ratio);
  }
  const int64_t side = out.tile / patch;
  out.patches = static_cast<int>(side);
  out.tokens_per_tile = static_cast<int>(side * side / std::lround(1.0 / (ratio * ratio)));
  if (out.tokens_per_tile < 1)
    return Fail(ErrorCode::kInvalidData, "a tile of preprocessor_config.json.size has no patch");
  RETURN_IF_ERROR(ReadLlama4Tokens(inputs, out));
  return std::make_unique<Llama4Processor>(std::move(out));
}

}  // namespace sluice
