#include "checkpoint/quantization.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/json_fields.h"

namespace sluice {
namespace {

constexpr uint64_t kMaxQuantizationBytes = uint64_t{8} << 20;

// Returns the value of a field as text. The field may be absent or have any type.
std::string TextOf(const json::Value& object, std::string_view name) {
  const json::Value* value = object.Find(name);
  if (value == nullptr || value->is_null()) return "";
  return value->is_string() ? value->as_string() : ShortText(*value);
}

std::string Describe(const QuantizationSettings& settings) {
  const json::Value* block = &settings.block;
  std::string method = TextOf(*block, "quant_method");
  // ModelOpt nests the settings one level deeper, next to the producer's name.
  if (method.empty() && block->Find("producer") != nullptr)
    method = TextOf(*block->Find("producer"), "name");
  const json::Value* inner = block->Find("quantization");
  if (inner != nullptr && inner->is_object()) block = inner;
  std::string algorithm;
  for (const std::string_view key : {"quant_algo", "format", "fmt", "activation_scheme"}) {
    if (algorithm.empty()) algorithm = TextOf(*block, key);
  }
  const json::Value* size = block->Find("weight_block_size");
  if (size != nullptr && !size->is_null()) algorithm += " in blocks";
  if (!algorithm.empty()) algorithm = " " + algorithm;
  return fmt::format("{}{} ({})", method.empty() ? "unnamed method" : method, algorithm,
                     settings.where);
}

}  // namespace

Result<std::optional<QuantizationSettings>> FindQuantizationBlock(const json::Value& config) {
  if (!config.is_object()) return std::nullopt;
  for (const std::string_view key : {"quantization_config", "compression_config"}) {
    ASSIGN_OR_RETURN(const json::Value* found, JsonFields(config, "").Object(key));
    if (found != nullptr) return QuantizationSettings{*found, fmt::format("config.json {}", key)};
  }
  const json::Value* text = config.Find("text_config");
  if (text == nullptr || !text->is_object()) return std::nullopt;
  for (const std::string_view key : {"quantization_config", "compression_config"}) {
    ASSIGN_OR_RETURN(const json::Value* found, JsonFields(*text, "text_config.").Object(key));
    if (found != nullptr) {
      return QuantizationSettings{*found, fmt::format("config.json text_config.{}", key)};
    }
  }
  return std::nullopt;
}

Result<std::optional<QuantizationSettings>> FindQuantizationSidecar(
    const std::filesystem::path& folder) {
  for (const char* name : {"hf_quant_config.json", "quantize_config.json", "quant_config.json"}) {
    const auto text = ReadFile(folder / name, kMaxQuantizationBytes);
    if (!text && text.error().code == ErrorCode::kNotFound) continue;
    if (!text) return tl::unexpected<Error>(text.error());
    auto value = json::Parse(*text);
    if (!value) {
      Error error = std::move(value).error().In((folder / name).string());
      error.code = ErrorCode::kInvalidData;
      return tl::unexpected<Error>(std::move(error));
    }
    if (!value->is_object()) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("{} must be a JSON object, found {}", (folder / name).string(),
                              ShortText(*value)),
                  name);
    }
    return QuantizationSettings{*std::move(value), name};
  }
  return std::nullopt;
}

Result<std::string> DescribeQuantization(const std::filesystem::path& folder,
                                         const json::Value& config) {
  ASSIGN_OR_RETURN(auto settings, FindQuantizationBlock(config));
  if (!settings) {
    ASSIGN_OR_RETURN(settings, FindQuantizationSidecar(folder));
  }
  return settings ? Describe(*settings) : std::string();
}

}  // namespace sluice
