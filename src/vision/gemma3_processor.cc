// Gemma 3: resizes an image of any shape to a square. Pan and scan adds crops of long images.
#include <algorithm>
#include <cmath>
#include <utility>

#include "vision/processor_settings.h"

namespace sluice {
namespace {

class Gemma3Processor : public ImageProcessor {
 public:
  struct Settings {
    int width = 896;
    int height = 896;
    int tokens = 256;
    bool pan_and_scan = false;
    int min_crop_size = 256;
    int max_crops = 4;
    double min_ratio = 1.2;
    ResizeFilter filter = ResizeFilter::kBilinear;
    PixelTable::Settings pixels;
    MarkerToken begin, end, soft;
  };

  explicit Gemma3Processor(Settings settings)
      : settings_(std::move(settings)), table_(settings_.pixels) {
    placeholder_ = settings_.begin.text;
  }

  Result<ImageParts> Process(const Image& image) const override {
    ImageParts parts;
    parts.push_back(std::make_shared<const ProcessedImage>(Part(image)));
    for (const ImageRegion& region : Crops(image.width, image.height))
      parts.push_back(std::make_shared<const ProcessedImage>(Part(CropImage(image, region))));
    return parts;
  }

  std::optional<int64_t> MemoryBytes(int width, int height) const override {
    const int64_t parts = 1 + static_cast<int64_t>(Crops(width, height).size());
    const int64_t part = 12LL * settings_.width * settings_.height + 5LL * (settings_.tokens + 2);
    return parts * part + 3LL * width * height +
           ResizeBytes(width, height, settings_.width, settings_.height);
  }

  std::string Expansion(const ImageParts& parts) const override {
    std::string one =
        "\n\n" + TextOfTokens(*parts.front(), {settings_.soft, settings_.begin, settings_.end}) +
        "\n\n";
    if (parts.size() == 1) return one;
    std::string text =
        "Here is the original image " + one + " and here are some crops to help you see better";
    for (size_t i = 1; i < parts.size(); ++i) text += " " + one;
    return text;
  }

 private:
  ProcessedImage Part(const Image& image) const {
    ProcessedImage out;
    out.shape = {1, 3, settings_.height, settings_.width};
    out.values.resize(3 * static_cast<size_t>(settings_.height) * settings_.width);
    table_.WritePlanes(ResizeImage(image, settings_.width, settings_.height, settings_.filter),
                       out.values.data());
    AppendTokens(out, settings_.begin.id, 1, false);
    AppendTokens(out, settings_.soft.id, settings_.tokens, true);
    AppendTokens(out, settings_.end.id, 1, false);
    FinishImage(out);
    return out;
  }

  // Returns crops along the longer side; none if the image is not long enough, or if crops would be
  // too small.
  std::vector<ImageRegion> Crops(int width, int height) const {
    if (!settings_.pan_and_scan) return {};
    const bool across = width >= height;
    const int longer = std::max(width, height);
    const int shorter = std::min(width, height);
    const double ratio = static_cast<double>(longer) / shorter;
    if (ratio < settings_.min_ratio) return {};
    int count =
        std::min(longer / settings_.min_crop_size, static_cast<int>(std::floor(ratio + 0.5)));
    count = std::min(settings_.max_crops, std::max(2, count));
    const int length = (longer + count - 1) / count;
    if (std::min(length, shorter) < settings_.min_crop_size) return {};
    std::vector<ImageRegion> regions;
    for (int i = 0; i < count; ++i) {
      const int from = length * i;
      const int part = std::min(length, longer - from);
      if (part < 1) break;
      regions.push_back(across ? ImageRegion{from, 0, part, height}
                               : ImageRegion{0, from, width, part});
    }
    return regions;
  }

  Settings settings_;
  PixelTable table_;
};

Status ReadPanAndScan(const JsonFields& fields, Gemma3Processor::Settings& out) {
  ASSIGN_OR_RETURN(const std::optional<bool> on, fields.Bool("do_pan_and_scan"));
  ASSIGN_OR_RETURN(const std::optional<int64_t> size,
                   fields.Integer("pan_and_scan_min_crop_size", 1, 1 << 20));
  ASSIGN_OR_RETURN(const std::optional<int64_t> crops,
                   fields.Integer("pan_and_scan_max_num_crops", 1, 64));
  ASSIGN_OR_RETURN(const std::optional<double> ratio,
                   fields.Number("pan_and_scan_min_ratio_to_activate", 0, 1e9));
  out.pan_and_scan = on.value_or(out.pan_and_scan);
  out.min_crop_size = static_cast<int>(size.value_or(out.min_crop_size));
  out.max_crops = static_cast<int>(crops.value_or(out.max_crops));
  out.min_ratio = ratio.value_or(out.min_ratio);
  return {};
}

}  // namespace

Result<std::unique_ptr<ImageProcessor>> CreateGemma3Processor(const ProcessorInputs& inputs) {
  ASSIGN_OR_RETURN(
      const ProcessorSettings settings,
      ProcessorSettings::Read(
          inputs, {"size", "do_pan_and_scan", "pan_and_scan_min_crop_size",
                   "pan_and_scan_max_num_crops", "pan_and_scan_min_ratio_to_activate"}));
  Gemma3Processor::Settings out;
  ASSIGN_OR_RETURN(const json::Value* size, settings.fields().Object("size"));
  if (size != nullptr) {
    const JsonFields sides(*size, "preprocessor_config.json.size.");
    ASSIGN_OR_RETURN(const int64_t height, sides.RequiredInteger("height", 1, 8192));
    ASSIGN_OR_RETURN(const int64_t width, sides.RequiredInteger("width", 1, 8192));
    out.height = static_cast<int>(height);
    out.width = static_cast<int>(width);
  }
  RETURN_IF_ERROR(ReadPanAndScan(settings.fields(), out));
  ASSIGN_OR_RETURN(out.filter, settings.Filter(ResizeFilter::kBilinear));
  ASSIGN_OR_RETURN(out.pixels, settings.Pixels({}));
  for (const json::Value* file : {&inputs.config, &inputs.processor}) {
    if (!file->is_object()) continue;
    const JsonFields fields(*file,
                            file == &inputs.config ? "config.json." : "processor_config.json.");
    ASSIGN_OR_RETURN(
        const std::optional<int64_t> tokens,
        fields.Integer(file == &inputs.config ? "mm_tokens_per_image" : "image_seq_length", 1,
                       1 << 16));
    out.tokens = static_cast<int>(tokens.value_or(out.tokens));
  }
  ASSIGN_OR_RETURN(out.begin, TokenOfConfig(inputs, "boi_token_index", "boi_token_id"));
  ASSIGN_OR_RETURN(out.end, TokenOfConfig(inputs, "eoi_token_index", "eoi_token_id"));
  ASSIGN_OR_RETURN(out.soft, TokenOfConfig(inputs, "image_token_index", "image_token_id"));
  return std::make_unique<Gemma3Processor>(std::move(out));
}

}  // namespace sluice
