#include "vision/processor_settings.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include "base/check.h"

namespace sluice {
namespace {

constexpr std::string_view kCommonSettings[] = {"do_resize",      "resample",      "do_rescale",
                                                "rescale_factor", "do_normalize",  "image_mean",
                                                "image_std",      "do_convert_rgb"};
constexpr int64_t kMaxSetting = 1 << 28;

Status Lay(const json::Value& overrides, const std::vector<std::string_view>& known,
           json::Value& merged) {
  for (const auto& [name, value] : overrides.as_object()) {
    if (name == "images_kwargs" && value.is_object()) {
      RETURN_IF_ERROR(Lay(value, known, merged));
      continue;
    }
    if (std::ranges::find(known, name) == known.end() &&
        std::ranges::find(kCommonSettings, name) == std::end(kCommonSettings)) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("--mm-processor-kwargs: {} is not a setting of this model's image "
                              "processor, which has {}, {}",
                              name, fmt::join(known, ", "), fmt::join(kCommonSettings, ", ")),
                  "mm-processor-kwargs");
    }
    merged.Set(name, value);
  }
  return {};
}

Result<std::array<double, 3>> Channels(const JsonFields& fields, std::string_view name,
                                       std::array<double, 3> otherwise) {
  ASSIGN_OR_RETURN(const json::Value::Array* given, fields.Array(name));
  if (given == nullptr) return otherwise;
  if (given->size() != 3) return fields.Bad(name, "three numbers", json::Value(*given));
  for (size_t i = 0; i < 3; ++i) {
    if (!(*given)[i].is_number()) return fields.Bad(name, "three numbers", json::Value(*given));
    otherwise[i] = (*given)[i].as_double();
  }
  return otherwise;
}

using HashState = std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)>;

void HashInto(const HashState& state, const void* data, size_t bytes) {
  XXH3_128bits_update(state.get(), data, bytes);
}

}  // namespace

Result<ProcessorSettings> ProcessorSettings::Read(const ProcessorInputs& inputs,
                                                  const std::vector<std::string_view>& known) {
  ProcessorSettings settings;
  settings.merged_ = inputs.image_processor.is_object() ? inputs.image_processor
                                                        : json::Value(json::Value::Object{});
  settings.overrides_ = inputs.overrides;
  if (inputs.overrides.is_object()) RETURN_IF_ERROR(Lay(inputs.overrides, known, settings.merged_));
  ASSIGN_OR_RETURN(const std::optional<bool> resize, settings.fields().Bool("do_resize"));
  if (resize == false)
    return Fail(ErrorCode::kUnsupported,
                "do_resize is false in preprocessor_config.json: images are always resized");
  return settings;
}

Result<int> ProcessorSettings::Size(std::string_view name, int otherwise) const {
  ASSIGN_OR_RETURN(const std::optional<int64_t> given, fields().Integer(name, 1, kMaxSetting));
  return static_cast<int>(given.value_or(otherwise));
}

bool ProcessorSettings::IsOverridden(std::string_view name) const {
  if (!overrides_.is_object()) return false;
  const json::Value* nested = overrides_.Find("images_kwargs");
  return overrides_.Find(name) != nullptr ||
         (nested != nullptr && nested->is_object() && nested->Find(name) != nullptr);
}

Result<std::string> ProcessorSettings::Kind(std::string_view otherwise) const {
  ASSIGN_OR_RETURN(const std::optional<std::string> given, fields().String("image_processor_type"));
  std::string_view kind = given ? std::string_view(*given) : otherwise;
  for (const std::string_view suffix : {"Fast", "Pil"}) {
    if (kind.ends_with(suffix)) kind.remove_suffix(suffix.size());
  }
  return std::string(kind);
}

Result<ResizeFilter> ProcessorSettings::Filter(ResizeFilter otherwise) const {
  ASSIGN_OR_RETURN(const std::optional<int64_t> given, fields().Integer("resample", 0, 100));
  if (!given) return otherwise;
  if (*given == 1) return ResizeFilter::kLanczos;
  if (*given == 2) return ResizeFilter::kBilinear;
  if (*given == 3) return ResizeFilter::kBicubic;
  return Fail(ErrorCode::kUnsupported,
              fmt::format("resample {} in preprocessor_config.json: images are resized with 1 "
                          "(Lanczos), 2 (bilinear) or 3 (bicubic)",
                          *given));
}

Result<PixelTable::Settings> ProcessorSettings::Pixels(PixelTable::Settings otherwise) const {
  const JsonFields from = fields();
  ASSIGN_OR_RETURN(const std::optional<bool> rescale, from.Bool("do_rescale"));
  ASSIGN_OR_RETURN(const std::optional<double> factor, from.Number("rescale_factor", 1e-9, 1e9));
  ASSIGN_OR_RETURN(const std::optional<bool> normalize, from.Bool("do_normalize"));
  otherwise.rescale = rescale.value_or(otherwise.rescale);
  otherwise.rescale_factor = factor.value_or(otherwise.rescale_factor);
  otherwise.normalize = normalize.value_or(otherwise.normalize);
  ASSIGN_OR_RETURN(otherwise.mean, Channels(from, "image_mean", otherwise.mean));
  ASSIGN_OR_RETURN(otherwise.deviation, Channels(from, "image_std", otherwise.deviation));
  if (std::ranges::find(otherwise.deviation, 0.0) != otherwise.deviation.end()) {
    return Fail(ErrorCode::kInvalidData,
                "preprocessor_config.json.image_std: expected numbers other than zero");
  }
  return otherwise;
}

Result<MarkerToken> TokenOfConfig(const ProcessorInputs& inputs, std::string_view name,
                                  std::string_view other_name) {
  const JsonFields fields(inputs.config, "config.json.");
  const bool first = fields.Given(name) != nullptr || fields.Given(other_name) == nullptr;
  ASSIGN_OR_RETURN(const int64_t id,
                   fields.RequiredInteger(first ? name : other_name, 0, INT32_MAX));
  MarkerToken token{static_cast<int32_t>(id), inputs.token_text(static_cast<int32_t>(id))};
  if (token.text.empty()) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("config.json.{} is {}, which the tokenizer does not have",
                            first ? name : other_name, id));
  }
  return token;
}

Result<MarkerToken> TokenOfText(const ProcessorInputs& inputs, std::string_view text) {
  const std::optional<int32_t> id = inputs.token_id(text);
  if (!id)
    return Fail(ErrorCode::kInvalidData,
                fmt::format("the tokenizer has no token {}, which images need", text));
  return MarkerToken{*id, std::string(text)};
}

void AppendTokens(ProcessedImage& image, int32_t token, int64_t count, bool is_embedding) {
  image.tokens.insert(image.tokens.end(), count, token);
  image.is_embedding.insert(image.is_embedding.end(), count, is_embedding ? 1 : 0);
}

void FinishImage(ProcessedImage& image) {
  CHECK(image.tokens.size() == image.is_embedding.size());
  image.num_embeddings = static_cast<int>(std::ranges::count(image.is_embedding, 1));
  const HashState state(XXH3_createState(), XXH3_freeState);
  CHECK(state != nullptr);
  XXH3_128bits_reset(state.get());
  HashInto(state, image.values.data(), image.values.size() * sizeof(float));
  HashInto(state, image.shape.data(), image.shape.size() * sizeof(int64_t));
  HashInto(state, image.grid.data(), sizeof image.grid);
  HashInto(state, image.tiles.data(), sizeof image.tiles);
  HashInto(state, image.kept.data(), sizeof image.kept);
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  image.hash = {hash.high64, hash.low64};
}

std::string TextOfTokens(const ProcessedImage& image, const std::vector<MarkerToken>& markers) {
  std::string text;
  for (const int32_t token : image.tokens) {
    const auto found = std::ranges::find(markers, token, &MarkerToken::id);
    CHECK(found != markers.end());
    text += found->text;
  }
  return text;
}

}  // namespace sluice
