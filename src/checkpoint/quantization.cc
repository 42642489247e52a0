#include "checkpoint/quantization.h"

#include <fmt/format.h>

#include "base/file.h"
#include "checkpoint/json_fields.h"

namespace sluice {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{8} << 20;

// The text of a field that may be absent or of any type.
std::string TextOf(const json::Value& object, std::string_view name) {
  const json::Value* value = object.Find(name);
  if (value == nullptr || value->is_null()) return "";
  return value->is_string() ? value->as_string() : ShortText(*value);
}

QuantizationInfo Describe(const json::Value& config, std::string source) {
  QuantizationInfo info;
  info.source = std::move(source);
  info.method = TextOf(config, "quant_method");
  for (const std::string_view key : {"quant_algo", "format", "fmt", "activation_scheme"}) {
    if (info.algorithm.empty()) info.algorithm = TextOf(config, key);
  }
  if (config.Find("weight_block_size") != nullptr && !config.Find("weight_block_size")->is_null()) {
    info.algorithm += " in blocks";
  }
  for (const std::string_view key : {"kv_cache_quant_algo", "kv_cache_scheme"}) {
    if (info.kv_cache.empty()) info.kv_cache = TextOf(config, key);
  }
  return info;
}

}  // namespace

std::string QuantizationInfo::Text() const {
  std::string text = method.empty() ? "unnamed method" : method;
  if (!algorithm.empty()) text += " " + algorithm;
  return fmt::format("{} ({})", text, source);
}

Result<std::optional<QuantizationInfo>> FindQuantization(const json::Value& config) {
  if (!config.is_object()) return std::nullopt;
  for (const std::string_view key : {"quantization_config", "compression_config"}) {
    ASSIGN_OR_RETURN(const json::Value* found, JsonFields(config, "").Object(key));
    if (found != nullptr) return Describe(*found, fmt::format("config.json {}", key));
  }
  const json::Value* text = config.Find("text_config");
  if (text == nullptr || !text->is_object()) return std::nullopt;
  ASSIGN_OR_RETURN(const json::Value* inner,
                   JsonFields(*text, "text_config.").Object("quantization_config"));
  if (inner == nullptr) return std::nullopt;
  return Describe(*inner, "config.json text_config.quantization_config");
}

Result<std::optional<QuantizationInfo>> FindQuantization(const std::filesystem::path& folder,
                                                         const json::Value& config) {
  ASSIGN_OR_RETURN(std::optional<QuantizationInfo> info, FindQuantization(config));
  if (info) return info;
  for (const char* name : {"hf_quant_config.json", "quantize_config.json", "quant_config.json"}) {
    const auto text = ReadFile(folder / name, kMaxConfigBytes);
    if (!text && text.error().code == ErrorCode::kNotFound) continue;
    if (!text) return tl::unexpected<Error>(text.error());
    auto value = json::Parse(*text);
    if (!value) return tl::unexpected<Error>(std::move(value).error().In((folder / name).string()));
    // ModelOpt nests the facts one level down and names the producer beside them.
    const json::Value* inner = value->Find("quantization");
    QuantizationInfo found =
        Describe(inner != nullptr && inner->is_object() ? *inner : *value, name);
    if (found.method.empty() && value->Find("producer") != nullptr)
      found.method = TextOf(*value->Find("producer"), "name");
    return found;
  }
  return std::nullopt;
}

}  // namespace sluice
