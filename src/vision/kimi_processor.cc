// Kimi K2.5: shrinks an image to a number of patches, and pads it to whole merged patches.
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "vision/processor_settings.h"

namespace sluice {
namespace {

struct KimiSize {
  int height = 0, width = 0;                // of the image
  int padded_height = 0, padded_width = 0;  // including the black pixels on the right and below
};

class KimiProcessor : public ImageProcessor {
 public:
  struct Settings {
    int patch = 14, merge = 2;
    int max_patches = 16384, max_side = 512;  // in patches
    ResizeFilter filter = ResizeFilter::kBicubic;
    PixelTable::Settings pixels;
    MarkerToken image;
  };

  explicit KimiProcessor(Settings settings)
      : settings_(std::move(settings)), table_(settings_.pixels) {
    placeholder_ = settings_.image.text;
  }

  Result<ImageParts> Process(const Image& image) const override {
    const KimiSize size = SizeOf(image.width, image.height);
    const Image resized = ResizeImage(image, size.width, size.height, settings_.filter);
    const Image padded = PadImage(resized, size.padded_width, size.padded_height, 0, 0, {});
    ProcessedImage out;
    const int patch = settings_.patch;
    out.grid = {1, size.padded_height / patch, size.padded_width / patch};
    const int64_t patches = int64_t{out.grid[1]} * out.grid[2];
    out.shape = {patches, 3, patch, patch};
    out.values.resize(3 * static_cast<size_t>(size.padded_height) * size.padded_width);
    WriteBlockPatches(padded, table_, patch, /*merge=*/1, /*frames=*/1, out.values.data());
    AppendTokens(out, settings_.image.id, patches / (settings_.merge * settings_.merge), true);
    FinishImage(out);
    ImageParts parts;
    parts.push_back(std::make_shared<const ProcessedImage>(std::move(out)));
    return parts;
  }

  std::optional<int64_t> MemoryBytes(int width, int height) const override {
    const KimiSize size = SizeOf(width, height);
    const int64_t padded = int64_t{size.padded_height} * size.padded_width;
    return 15 * padded + 5 * padded / (int64_t{settings_.patch} * settings_.patch) + 512 +
           ResizeBytes(width, height, size.width, size.height);
  }

  std::string Expansion(const ImageParts& parts) const override {
    return TextOfTokens(*parts.front(), {settings_.image});
  }

 private:
  // Rounds like transformers' navit_resize.
  KimiSize SizeOf(int width, int height) const {
    const int patch = settings_.patch, most = settings_.max_side * patch;
    const double down = std::max(1, height / patch), across = std::max(1, width / patch);
    const double scale =
        std::min({1.0, std::sqrt(settings_.max_patches / (down * across)),
                  static_cast<double>(most) / height, static_cast<double>(most) / width});
    const auto scaled = [&](int side) {
      return std::clamp(static_cast<int>(side * scale), 1, most);
    };
    const auto padded = [&](int side) {
      const int factor = patch * settings_.merge;
      return (side + factor - 1) / factor * factor;
    };
    KimiSize size{.height = scaled(height), .width = scaled(width)};
    size.padded_height = padded(size.height);
    size.padded_width = padded(size.width);
    return size;
  }

  Settings settings_;
  PixelTable table_;
};

// Converts the settings of the published files, {"media_proc_cfg": {...}}, to transformers' names.
Result<json::Value> InTransformersNames(const json::Value& settings) {
  const json::Value* published = settings.is_object() ? settings.Find("media_proc_cfg") : nullptr;
  if (published == nullptr) return settings;
  const JsonFields fields(*published, "preprocessor_config.json.media_proc_cfg.");
  if (!published->is_object())
    return Fail(ErrorCode::kInvalidData,
                "preprocessor_config.json.media_proc_cfg: expected an object");
  if (fields.Given("fixed_output_tokens") != nullptr) {
    return Fail(ErrorCode::kUnsupported,
                "preprocessor_config.json.media_proc_cfg.fixed_output_tokens is not supported");
  }
  json::Value out(json::Value::Object{});
  for (const auto& [from, to] : {std::pair{"in_patch_limit", "max_patches"},
                                 {"patch_size", "patch_size"},
                                 {"merge_kernel_size", "merge_size"},
                                 {"image_mean", "image_mean"},
                                 {"image_std", "image_std"}}) {
    if (const json::Value* value = fields.Given(from)) out.Set(to, *value);
  }
  if (const json::Value* side = fields.Given("patch_limit_on_one_side"))
    out.Set("size", json::Value(json::Value::Object{{"max_height", *side}, {"max_width", *side}}));
  return out;
}

}  // namespace

Result<std::unique_ptr<ImageProcessor>> CreateKimiProcessor(const ProcessorInputs& inputs) {
  ProcessorInputs own = inputs;
  ASSIGN_OR_RETURN(own.image_processor, InTransformersNames(inputs.image_processor));
  ASSIGN_OR_RETURN(
      const ProcessorSettings settings,
      ProcessorSettings::Read(own, {"size", "max_patches", "patch_size", "merge_size"}));
  KimiProcessor::Settings out;
  ASSIGN_OR_RETURN(out.patch, settings.Size("patch_size", 14));
  ASSIGN_OR_RETURN(out.merge, settings.Size("merge_size", 2));
  ASSIGN_OR_RETURN(out.max_patches, settings.Size("max_patches", 16384));
  ASSIGN_OR_RETURN(const json::Value* size, settings.fields().Object("size"));
  if (size != nullptr) {
    const JsonFields sides(*size, "preprocessor_config.json.size.");
    ASSIGN_OR_RETURN(const int64_t height, sides.RequiredInteger("max_height", 1, 8192));
    ASSIGN_OR_RETURN(const int64_t width, sides.RequiredInteger("max_width", 1, 8192));
    if (height != width)
      return Fail(ErrorCode::kInvalidData,
                  "preprocessor_config.json.size: expected the same max_height and max_width");
    out.max_side = static_cast<int>(height);
  }
  if (out.patch > 256 || out.merge > 16 || out.max_patches > (1 << 20)) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("patch_size {}, merge_size {} and max_patches {} in "
                            "preprocessor_config.json: at most 256, 16 and {} are supported",
                            out.patch, out.merge, out.max_patches, 1 << 20));
  }
  ASSIGN_OR_RETURN(out.filter, settings.Filter(ResizeFilter::kBicubic));
  ASSIGN_OR_RETURN(out.pixels, settings.Pixels({}));
  ASSIGN_OR_RETURN(out.image,
                   TokenOfConfig(inputs, "media_placeholder_token_id", "image_token_id"));
  return std::make_unique<KimiProcessor>(std::move(out));
}

}  // namespace sluice
