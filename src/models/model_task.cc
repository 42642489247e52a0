#include "models/model_task.h"

#include <utility>

#include <fmt/format.h>

#include "base/json_fields.h"
#include "models/encoder/encoder_spec.h"

namespace sluice {
namespace {

constexpr int64_t kMaxScores = 1 << 16;

// Returns the number of labels: num_labels, else the size of id2label, else transformers' default
// of two.
Result<int64_t> NumLabels(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const auto given, fields.Integer("num_labels", 1, kMaxScores));
  if (given) return *given;
  ASSIGN_OR_RETURN(const json::Value* labels, fields.Object("id2label"));
  if (labels == nullptr || labels->as_object().empty()) return 2;
  return static_cast<int64_t>(labels->as_object().size());
}

// Computes scores from rows of the language model's head.
Status TakeFromTokens(const JsonFields& fields, const std::vector<int32_t>& tokens,
                      int64_t vocab_size, HeadSpec& head) {
  ASSIGN_OR_RETURN(const auto is_reranker, fields.Bool("is_original_qwen3_reranker"));
  ASSIGN_OR_RETURN(const auto given, fields.String("method"));
  const std::string method =
      is_reranker.value_or(false) ? "from_2_way_softmax" : given.value_or("no_post_processing");
  head.is_difference = method == "from_2_way_softmax";
  if (!head.is_difference && method != "no_post_processing") {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("method '{}' of classifier_from_token is not supported; supported are "
                            "no_post_processing and from_2_way_softmax",
                            ShortName(method)),
                "method");
  }
  if (head.is_difference && tokens.size() != 2) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("classifier_from_token: from_2_way_softmax needs two tokens, one for "
                            "no and one for yes; found {}",
                            tokens.size()),
                "classifier_from_token");
  }
  for (const int32_t token : tokens) {
    if (token < 0 || token >= vocab_size) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("classifier_from_token: token {} is outside of the vocabulary of {}",
                              token, vocab_size),
                  "classifier_from_token");
    }
  }
  head.tokens = tokens;
  head.num_scores = head.is_difference ? 1 : static_cast<int64_t>(tokens.size());
  return {};
}

}  // namespace

ModelTask NativeTask(const ModelConfig& config) {
  const std::string_view name = config.architecture;
  if (name.ends_with("ForSequenceClassification")) return ModelTask::kClassify;
  if (IsEncoder(name)) return ModelTask::kEmbed;
  const bool is_bare = name.ends_with("Model") && !name.ends_with("LMHeadModel");
  return is_bare ? ModelTask::kEmbed : ModelTask::kGenerate;
}

Status SetTask(ModelTask task, const std::vector<int32_t>& classifier_tokens, ModelConfig& config) {
  if (task == ModelTask::kGenerate) {
    if (NativeTask(config) == ModelTask::kGenerate) return {};
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format(
            "{} has no language model head, so it cannot generate tokens; use --runner pooling",
            config.architecture),
        "runner");
  }
  HeadSpec& head = config.spec.head;
  head = {};
  head.kind = task == ModelTask::kEmbed ? HeadSpec::Kind::kNone : HeadSpec::Kind::kScores;
  if (task == ModelTask::kEmbed) return {};
  const JsonFields fields(config.raw, "");
  if (!classifier_tokens.empty())
    return TakeFromTokens(fields, classifier_tokens, config.vocab_size, head);
  ASSIGN_OR_RETURN(head.num_scores, NumLabels(fields));
  return {};
}

Result<std::vector<std::string>> ClassifierTokens(const json::Value& config) {
  ASSIGN_OR_RETURN(auto tokens, JsonFields(config, "").Strings("classifier_from_token"));
  return std::move(tokens).value_or(std::vector<std::string>());
}

}  // namespace sluice
