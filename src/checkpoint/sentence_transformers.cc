#include "checkpoint/sentence_transformers.h"

#include <algorithm>
#include <ranges>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/ascii.h"
#include "base/json_fields.h"
#include "base/model_file.h"

namespace sluice {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxTokenizerConfigBytes = uint64_t{64} << 20;  // the file may contain a
                                                                   // vocabulary
constexpr int64_t kMaxFeatures = int64_t{1} << 16;
constexpr int64_t kMaxTextTokens = int64_t{1} << 31;
constexpr double kNoLimit = 1e40;

// Reads a JSON file from the folder. Returns null if it does not exist.
Result<json::Value> ReadOptional(const std::filesystem::path& folder,
                                 const std::filesystem::path& name,
                                 uint64_t max_bytes = kMaxFileBytes) {
  const auto text = ReadModelFile(folder, name, max_bytes);
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
                               const std::filesystem::path& name,
                               uint64_t max_bytes = kMaxFileBytes) {
  ASSIGN_OR_RETURN(json::Value value, ReadOptional(folder, name, max_bytes));
  if (value.is_null()) return json::Value{json::Value::Object{}};
  if (value.is_object()) return value;
  return Fail(ErrorCode::kInvalidData, fmt::format("{}: must be a JSON object, found {}",
                                                   (folder / name).string(), ShortText(value)));
}

// Reads the pooling method from a Pooling module's config.json: a name, or one flag per method.
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
                fmt::format("{} pooling modes are set, expected one: concatenated vectors of "
                            "several modes are not supported",
                            set.size()),
                "pooling_mode");
  }
  return PoolingMethodNamed(set.front(), "pooling_mode");
}

// Reads the tokenizer's limit. Since release 6 of sentence-transformers, it is the only limit.
// nullopt if no text can exceed it (1e30).
Result<std::optional<int64_t>> ReadTokenizerLimit(const std::filesystem::path& folder) {
  constexpr const char* kFile = "tokenizer_config.json";
  ASSIGN_OR_RETURN(const json::Value value, ReadObject(folder, kFile, kMaxTokenizerConfigBytes));
  ASSIGN_OR_RETURN(
      const auto limit,
      JsonFields(value, std::string(kFile) + ": ").Number("model_max_length", 1, kNoLimit));
  if (!limit || *limit > static_cast<double>(kMaxTextTokens)) return std::nullopt;
  return static_cast<int64_t>(*limit);
}

// Reads the default prompt and the limits of texts.
Status ReadTextSettings(const std::filesystem::path& folder, SentenceTransformersConfig& config) {
  ASSIGN_OR_RETURN(const json::Value bert, ReadObject(folder, "sentence_bert_config.json"));
  const JsonFields limits(bert, "sentence_bert_config.json: ");
  ASSIGN_OR_RETURN(config.max_tokens, limits.Integer("max_seq_length", 1, kMaxTextTokens));
  if (!config.max_tokens) {
    ASSIGN_OR_RETURN(config.max_tokens, ReadTokenizerLimit(folder));
  }
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

Result<DenseActivation> DenseActivationNamed(const std::string& name) {
  constexpr std::pair<std::string_view, DenseActivation> kActivations[] = {
      {"torch.nn.modules.linear.Identity", DenseActivation::kIdentity},
      {"torch.nn.modules.activation.Tanh", DenseActivation::kTanh},
      {"torch.nn.modules.activation.ReLU", DenseActivation::kRelu},
      {"torch.nn.modules.activation.GELU", DenseActivation::kGelu},
      {"torch.nn.modules.activation.Sigmoid", DenseActivation::kSigmoid},
      {"torch.nn.modules.activation.SiLU", DenseActivation::kSilu}};
  for (const auto& [known, activation] : kActivations) {
    if (name == known) return activation;
  }
  return Fail(ErrorCode::kUnsupported,
              fmt::format("activation_function '{}' is not supported; supported are {}",
                          ShortName(name), fmt::join(std::views::keys(kActivations), ", ")),
              "activation_function");
}

// Reads a Dense module. `config`: the configuration read so far, with the modules before this one.
Result<DenseModule> ReadDense(const std::filesystem::path& model, const std::string& folder,
                              const SentenceTransformersConfig& config) {
  const std::filesystem::path file = std::filesystem::path(folder) / "config.json";
  ASSIGN_OR_RETURN(const json::Value value, ReadObject(model, file));
  const JsonFields fields(value, file.string() + ": ");
  DenseModule dense;
  dense.folder = folder;
  ASSIGN_OR_RETURN(dense.in_features, fields.RequiredInteger("in_features", 1, kMaxFeatures));
  ASSIGN_OR_RETURN(dense.out_features, fields.RequiredInteger("out_features", 1, kMaxFeatures));
  if (!config.dense.empty() && dense.in_features != config.dense.back().out_features) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("{}: in_features: expected {}, the out_features of {}, found {}",
                            file.string(), config.dense.back().out_features,
                            config.dense.back().folder, dense.in_features),
                "in_features");
  }
  ASSIGN_OR_RETURN(const auto has_bias, fields.Bool("bias"));
  dense.has_bias = has_bias.value_or(true);
  ASSIGN_OR_RETURN(const auto activation, fields.String("activation_function"));
  if (activation) {
    auto named = DenseActivationNamed(*activation);
    if (!named) return tl::unexpected<Error>(std::move(named).error().In(file.string()));
    dense.activation = *named;
  }
  for (const char* name : {"module_input_name", "module_output_name"}) {
    ASSIGN_OR_RETURN(const auto place, fields.String(name));
    if (place.value_or("sentence_embedding") == "sentence_embedding") continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: {} '{}' is not supported; supported is sentence_embedding, the "
                            "pooled vector",
                            file.string(), name, ShortName(*place)),
                name);
  }
  ASSIGN_OR_RETURN(const auto has_residual, fields.Bool("use_residual"));
  if (has_residual.value_or(false)) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: use_residual true is not supported: a layer returns only its activation",
                    file.string()),
        "use_residual");
  }
  return dense;
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
    if (name == "Dense" && pools && !config.normalize) {
      ASSIGN_OR_RETURN(DenseModule dense, ReadDense(folder, path.value_or(""), config));
      config.dense.push_back(std::move(dense));
      continue;
    }
    if (name != "Pooling" || pools) {
      return Fail(
          ErrorCode::kUnsupported,
          fmt::format("modules.json: the module '{}' is not supported at this position; supported: "
                      "Transformer, one Pooling, Dense, Normalize, in this order",
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
