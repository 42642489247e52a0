#include "engine/pooling_config.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/json_fields.h"
#include "models/encoder/encoder_spec.h"

namespace sluice {
namespace {

constexpr int64_t kMaxDimension = int64_t{1} << 20;

Result<ModelTask> ResolveTask(const PoolingOptions& options, const ModelConfig& model,
                              bool has_modules) {
  const ModelTask native = NativeTask(model);
  const bool converts =
      options.convert == ConvertChoice::kEmbed || options.convert == ConvertChoice::kClassify;
  if (options.runner == RunnerChoice::kGenerate) {
    if (converts) {
      return Fail(ErrorCode::kInvalidArgument,
                  "--runner generate and --convert embed or classify contradict each other: omit "
                  "one of them",
                  "convert");
    }
    return ModelTask::kGenerate;
  }
  if (options.convert == ConvertChoice::kEmbed) return ModelTask::kEmbed;
  if (options.convert == ConvertChoice::kClassify) return ModelTask::kClassify;
  if (native != ModelTask::kGenerate) return native;
  if (options.runner == RunnerChoice::kPooling || has_modules) return ModelTask::kEmbed;
  return ModelTask::kGenerate;
}

// Returns the activation for scores from the sentence-transformers or transformers settings.
Result<PoolingActivation> ScoreActivation(const JsonFields& config, int64_t num_scores) {
  ASSIGN_OR_RETURN(const json::Value* inner, config.Object("sentence_transformers"));
  std::optional<std::string> name;
  if (inner != nullptr) {
    ASSIGN_OR_RETURN(name, JsonFields(*inner, "sentence_transformers.").String("activation_fn"));
  }
  if (!name) {
    ASSIGN_OR_RETURN(name, config.String("sbert_ce_default_activation_function"));
  }
  if (name) {
    const std::string_view last = std::string_view(*name).substr(name->rfind('.') + 1);
    if (last == "Identity") return PoolingActivation::kNone;
    if (last == "Sigmoid") return PoolingActivation::kSigmoid;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("the activation '{}' of scores is not supported; supported are Sigmoid "
                            "and Identity",
                            ShortName(*name)),
                "activation_fn");
  }
  ASSIGN_OR_RETURN(const auto problem, config.String("problem_type"));
  if (problem == "regression") return PoolingActivation::kNone;
  if (problem == "multi_label_classification" || num_scores == 1)
    return PoolingActivation::kSigmoid;
  return PoolingActivation::kSoftmax;
}

// Returns the label names in id2label, by class number.
std::vector<std::string> Labels(const json::Value& config, int64_t num_scores) {
  std::vector<std::string> labels;
  const json::Value* map = config.Find("id2label");
  if (map == nullptr || !map->is_object()) return labels;
  for (int64_t i = 0; i < num_scores; ++i) {
    const json::Value* label = map->Find(std::to_string(i));
    labels.push_back(label != nullptr && label->is_string() ? label->as_string() : "");
  }
  return labels;
}

Status ReadMatryoshka(const JsonFields& fields, PoolingConfig& config) {
  ASSIGN_OR_RETURN(auto lengths, fields.Integers("matryoshka_dimensions", 1, kMaxDimension));
  ASSIGN_OR_RETURN(const auto any, fields.Bool("is_matryoshka"));
  config.dimensions = std::move(lengths).value_or(std::vector<int64_t>());
  config.is_matryoshka = any.value_or(false) || !config.dimensions.empty();
  return {};
}

// Applies --pooler-config; accepts vLLM's current and former key names.
Status ApplyPooler(const json::Value& pooler, PoolingConfig& config) {
  if (pooler.is_null()) return {};
  const JsonFields fields(pooler, "--pooler-config: ");
  for (const auto& [key, value] : pooler.as_object()) {
    if (value.is_null()) continue;
    if (key == "pooling_type" || key == "seq_pooling_type") {
      ASSIGN_OR_RETURN(const auto name, fields.String(key));
      ASSIGN_OR_RETURN(config.method, PoolingMethodNamed(*name, "--pooler-config: " + key));
    } else if (key == "use_activation" || key == "normalize" || key == "softmax" ||
               key == "activation") {
      ASSIGN_OR_RETURN(const auto is_wanted, fields.Bool(key));
      if (!*is_wanted) {
        config.activation = PoolingActivation::kNone;
      } else if (config.task == ModelTask::kEmbed) {
        config.activation = PoolingActivation::kNormalize;
      }
    } else {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("--pooler-config: {} is not supported; supported: pooling_type "
                              "(seq_pooling_type) of LAST, CLS or MEAN, and use_activation "
                              "(normalize, softmax)",
                              ShortName(key)),
                  "pooler-config");
    }
  }
  return {};
}

Status CheckDense(const std::vector<DenseModule>& dense, int64_t pooled_size) {
  if (dense.empty() || dense.front().in_features == pooled_size) return {};
  return Fail(ErrorCode::kInvalidData,
              fmt::format("{}/config.json: in_features: expected {}, the size of the model's "
                          "hidden states, found {}",
                          dense.front().folder, pooled_size, dense.front().in_features),
              "in_features");
}

}  // namespace

Result<std::optional<PoolingConfig>> ResolvePooling(const PoolingOptions& options,
                                                    const std::filesystem::path& folder,
                                                    ModelConfig& model) {
  ASSIGN_OR_RETURN(const auto files, LoadSentenceTransformersConfig(folder));
  ASSIGN_OR_RETURN(const ModelTask task, ResolveTask(options, model, files.has_value()));
  RETURN_IF_ERROR(SetTask(task, options.classifier_tokens, model));
  if (task == ModelTask::kGenerate) {
    if (options.pooler.is_null()) return std::nullopt;
    return Fail(ErrorCode::kInvalidArgument,
                "--pooler-config is for pooling models: use --runner pooling, or omit it",
                "pooler-config");
  }
  PoolingConfig config;
  config.task = task;
  config.separates_texts = IsEncoder(model.architecture);
  if (config.separates_texts) {
    config.method = PoolingMethod::kCls;
    ASSIGN_OR_RETURN(const EncoderSpec encoder, ReadEncoderSpec(model.raw));
    config.num_token_types = encoder.num_types;
  }
  if (files) {
    config.method = files->method;
    if (!files->normalize) config.activation = PoolingActivation::kNone;
    config.max_tokens = files->max_tokens;
    config.truncates = true;
    config.lower_case = files->lower_case;
    config.prompt = files->prompt;
    config.prompts = files->prompts;
  }
  if (files && task == ModelTask::kEmbed) {
    config.dense = files->dense;
    RETURN_IF_ERROR(CheckDense(config.dense, model.spec.ResultSize()));
  }
  const JsonFields fields(model.raw, "");
  ASSIGN_OR_RETURN(auto instructions, fields.Texts("task_instructions"));
  if (instructions) config.prompts = *std::move(instructions);
  if (task == ModelTask::kClassify) {
    const int64_t num_scores = model.spec.head.num_scores;
    ASSIGN_OR_RETURN(config.activation, ScoreActivation(fields, num_scores));
    config.labels = Labels(model.raw, num_scores);
  } else {
    RETURN_IF_ERROR(ReadMatryoshka(fields, config));
  }
  RETURN_IF_ERROR(ApplyPooler(options.pooler, config));
  if (task == ModelTask::kClassify && config.method == PoolingMethod::kMean) {
    return Fail(ErrorCode::kUnsupported,
                "scores are computed from one hidden state, not from the mean of all: pooling_type "
                "MEAN is only for embeddings",
                "pooler-config");
  }
  return config;
}

}  // namespace sluice
