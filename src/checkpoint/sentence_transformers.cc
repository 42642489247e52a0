#include "checkpoint/sentence_transformers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/json_fields.h"
#include "base/model_file.h"

namespace sluice {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 20;

// A JSON file of the folder; null where it is not there.
Result<json::Value> ReadOptional(const std::filesystem::path& folder,
                                 const std::filesystem::path& name) {
  const auto text = ReadModelFile(folder, name, kMaxFileBytes);
  if (!text && text.error().code == ErrorCode::kNotFound) return json::Value();
  if (!text) return tl::unexpected<Error>(text.error());
  auto value = json::Parse(*text);
  if (!value) {
    Error error = std::move(value).error().In((folder / name).string());
    error.code = ErrorCode::kInvalidData;
    return tl::unexpected<Error>(std::move(error));
  }
  return *std::move(value);
}

Result<json::Value> ReadObject(const std::filesystem::path& folder,
                               const std::filesystem::path& name) {
  ASSIGN_OR_RETURN(json::Value value, ReadOptional(folder, name));
  if (value.is_null()) return json::Value{json::Value::Object{}};
  if (value.is_object()) return value;
  return Fail(ErrorCode::kInvalidData, fmt::format("{}: must be a JSON object, found {}",
                                                   (folder / name).string(), ShortText(value)));
}

// The way of pooling in a Pooling module's config.json: a name, or a flag each.
Result<PoolingMethod> ReadPooling(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const auto name, fields.String("pooling_mode"));
  if (name) return PoolingMethodNamed(*name, "pooling_mode");
  constexpr std::pair<std::string_view, std::string_view> kFlags[] = {
      {"pooling_mode_cls_token", "cls"},
      {"pooling_mode_mean_tokens", "mean"},
      {"pooling_mode_lasttoken", "last"},
      {"pooling_mode_max_tokens", "max"},
      {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len"},
      {"pooling_mode_weightedmean_tokens", "weightedmean"}};
  std::vector<std::string_view> set;
  for (const auto& [flag, method] : kFlags) {
    ASSIGN_OR_RETURN(const auto is_set, fields.Bool(flag));
    if (is_set.value_or(false)) set.push_back(method);
  }
  if (set.size() != 1) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} ways of pooling are set, expected one: vectors of several ways, "
                            "one behind the other, are not supported",
                            set.size()),
                "pooling_mode");
  }
  return PoolingMethodNamed(set.front(), "pooling_mode");
}

// The default prompt, and limits on texts.
Status ReadTextSettings(const std::filesystem::path& folder, SentenceTransformersConfig& config) {
  ASSIGN_OR_RETURN(const json::Value bert, ReadObject(folder, "sentence_bert_config.json"));
  const JsonFields limits(bert, "sentence_bert_config.json: ");
  ASSIGN_OR_RETURN(config.max_tokens, limits.Integer("max_seq_length", 1, int64_t{1} << 31));
  ASSIGN_OR_RETURN(const auto lower_case, limits.Bool("do_lower_case"));
  config.lower_case = lower_case.value_or(false);
  constexpr const char* kPrompts = "config_sentence_transformers.json";
  ASSIGN_OR_RETURN(const json::Value outer, ReadObject(folder, kPrompts));
  const JsonFields fields(outer, std::string(kPrompts) + ": ");
  ASSIGN_OR_RETURN(auto prompts, fields.Texts("prompts"));
  if (prompts) config.prompts = *std::move(prompts);
  ASSIGN_OR_RETURN(const auto name, fields.String("default_prompt_name"));
  if (!name) return {};
  const auto prompt = config.prompts.find(*name);
  if (prompt == config.prompts.end()) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("{}: default_prompt_name '{}' is not a text among the prompts",
                            kPrompts, ShortName(*name)),
                "default_prompt_name");
  }
  config.prompt = prompt->second;
  return {};
}

Status ReadModules(const std::filesystem::path& folder, const json::Value& modules,
                   SentenceTransformersConfig& config) {
  bool pools = false;
  for (const json::Value& module : modules.as_array()) {
    if (!module.is_object())
      return Fail(ErrorCode::kInvalidData, "modules.json: every module must be an object");
    const JsonFields fields(module, "modules.json: ");
    ASSIGN_OR_RETURN(const auto type, fields.String("type"));
    ASSIGN_OR_RETURN(const auto path, fields.String("path"));
    const std::string full = type.value_or("");
    const std::string_view name = std::string_view(full).substr(full.rfind('.') + 1);
    if (name == "Transformer") continue;
    if (name == "Normalize") {
      config.normalize = true;
      continue;
    }
    if (name != "Pooling" || pools) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("modules.json: the module '{}' is not supported; supported are "
                              "Transformer, one Pooling, Normalize",
                              ShortName(full)),
                  "modules.json");
    }
    pools = true;
    const std::filesystem::path file = std::filesystem::path(path.value_or("")) / "config.json";
    ASSIGN_OR_RETURN(const json::Value pooling, ReadObject(folder, file));
    const JsonFields pooling_fields(pooling, file.string() + ": ");
    auto method = ReadPooling(pooling_fields);
    if (!method) return tl::unexpected<Error>(std::move(method).error().In(file.string()));
    config.method = *method;
    ASSIGN_OR_RETURN(const auto include_prompt, pooling_fields.Bool("include_prompt"));
    if (!include_prompt.value_or(true)) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("{}: include_prompt false is not supported: the prompt's tokens are "
                              "pooled like the others",
                              file.string()),
                  "include_prompt");
    }
  }
  return {};
}

}  // namespace

Result<PoolingMethod> PoolingMethodNamed(std::string_view name, std::string_view field) {
  const std::string lower = AsciiLower(name);
  if (lower == "last" || lower == "lasttoken") return PoolingMethod::kLast;
  if (lower == "cls") return PoolingMethod::kCls;
  if (lower == "mean") return PoolingMethod::kMean;
  return Fail(ErrorCode::kUnsupported,
              fmt::format("{}: pooling by '{}' is not supported; supported are LAST, CLS and MEAN",
                          field, ShortName(name)),
              std::string(field));
}

Result<std::optional<SentenceTransformersConfig>> LoadSentenceTransformersConfig(
    const std::filesystem::path& folder) {
  ASSIGN_OR_RETURN(const json::Value modules, ReadOptional(folder, "modules.json"));
  if (modules.is_null()) return std::nullopt;
  const auto read = [&]() -> Result<SentenceTransformersConfig> {
    if (!modules.is_array())
      return Fail(ErrorCode::kInvalidData, "modules.json: must be a list of modules");
    SentenceTransformersConfig config;
    RETURN_IF_ERROR(ReadModules(folder, modules, config));
    RETURN_IF_ERROR(ReadTextSettings(folder, config));
    return config;
  };
  auto config = read();
  if (!config) return tl::unexpected<Error>(std::move(config).error().In(folder.string()));
  return *std::move(config);
}

}  // namespace sluice
