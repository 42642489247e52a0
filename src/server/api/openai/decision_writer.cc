#include "server/api/openai/decision_writer.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "base/append_format.h"
#include "base/json.h"
#include "server/api/common/api_error.h"

namespace sluice {
namespace {

using Type = DecisionQuestion::Type;

// Replaces -infinity, which JSON does not have; probabilities computed from it would be NaN.
constexpr double kLeastRead = -9999;

class DecisionWriter final : public AnswerWriter {
 public:
  DecisionWriter(std::shared_ptr<const DecisionRequest> request, AnswerOptions options,
                 std::shared_ptr<ResponseWriter> client)
      : request_(std::move(request)),
        options_(std::move(options)),
        client_(std::move(client)),
        reads_(request_->questions.size()) {}

  void Write(AnswerStep step) override {
    for (AnswerEvent& event : step) {
      if (const auto* const prompt = std::get_if<PromptEvent>(&event)) {
        cached_tokens_ += prompt->result.cached_tokens;
      } else if (const auto* const tokens = std::get_if<TokensEvent>(&event)) {
        Take(*tokens);
      } else if (const auto* const usage = std::get_if<UsageEvent>(&event)) {
        Send(*usage);
      } else if (const auto* const error = std::get_if<ErrorEvent>(&event)) {
        client_->Send(ErrorResponse(error->error, options_.model->config.dialect));
      }
    }
  }

 private:
  void Take(const TokensEvent& event) {
    DecisionRead& read = reads_[static_cast<size_t>(event.choice)];
    if (event.logprobs.empty() || !read.logprobs.empty()) return;
    const TokenLogprobs& token = event.logprobs.front();
    for (const auto& [id, logprob] : token.top) {
      read.logprobs.push_back(std::max(static_cast<double>(logprob), kLeastRead));
      read.argmax_is_label = read.argmax_is_label || id == token.token;
    }
  }

  // Writes {"A": 0.5, ...}, keyed by the names of options or, for a score, by the numbers of
  // levels.
  static void AppendByName(std::string& out, const DecisionQuestion& question,
                           const std::vector<double>& probabilities) {
    out.push_back('{');
    for (size_t i = 0; i < probabilities.size(); ++i) {
      if (i > 0) out.push_back(',');
      json::AppendString(
          out, question.type == Type::kScore ? std::to_string(i) : question.options[i].name);
      out.push_back(':');
      json::AppendDouble(out, probabilities[i]);
    }
    out.push_back('}');
  }

  static double ScoreOf(const DecisionOdds& odds) {
    double score = 0;
    for (size_t i = 0; i < odds.probabilities.size(); ++i)
      score += static_cast<double>(i) * odds.probabilities[i];
    return score;
  }

  static void AppendSystemOne(std::string& out, const DecisionQuestion& question,
                              const DecisionOdds& odds) {
    switch (question.type) {
      case Type::kChoice:
        out += R"({"type":"choice","choice":)";
        json::AppendString(out, question.options[odds.best].name);
        break;
      case Type::kNoul:
        out += R"({"type":"noul","noul":)";
        json::AppendDouble(out, odds.probabilities[0]);
        break;
      case Type::kScore:
        out += R"({"type":"score","score":)";
        json::AppendDouble(out, ScoreOf(odds));
        out += R"(,"legend":{)";
        for (size_t i = 0; i < question.options.size(); ++i) {
          AppendFormat(out, R"({}"{}":)", i > 0 ? "," : "", i);
          json::AppendString(out, question.options[i].name);
        }
        out.push_back('}');
        break;
    }
    out += R"(,"probabilities":)";
    AppendByName(out, question, odds.probabilities);
    out += R"(,"confidence":)";
    json::AppendDouble(out, odds.probabilities[odds.best] * odds.label_mass);
    out.push_back('}');
  }

  static void AppendValue(std::string& out, const DecisionOption& option) {
    if (option.is_bool) {
      out += option.name;
    } else {
      json::AppendString(out, option.name);
    }
  }

  static void AppendDecision(std::string& out, const DecisionQuestion& question,
                             const DecisionOdds& odds) {
    constexpr std::string_view kTypes[] = {"choice", "predicate", "score"};
    AppendFormat(out, R"({{"type":"{}","name":)", kTypes[static_cast<size_t>(question.type)]);
    if (question.has_id) {
      json::AppendString(out, question.id);
    } else {
      out += "null";
    }
    if (question.type == Type::kNoul) {
      out += R"(,"probability":)";
      json::AppendDouble(out, odds.probabilities[0]);
      out.push_back('}');
      return;
    }
    const bool is_score = question.type == Type::kScore;
    out += is_score ? R"(,"score":)" : R"(,"choice":)";
    if (is_score) {
      json::AppendDouble(out, ScoreOf(odds));
    } else {
      AppendValue(out, question.options[odds.best]);
    }
    out += R"(,"probabilities":[)";
    for (size_t i = 0; i < odds.probabilities.size(); ++i) {
      if (i > 0) out.push_back(',');
      out += R"({"value":)";
      if (is_score) {
        AppendFormat(out, R"({},"label":)", i);
        json::AppendString(out, question.options[i].name);
      } else {
        AppendValue(out, question.options[i]);
      }
      out += R"(,"probability":)";
      json::AppendDouble(out, odds.probabilities[i]);
      out.push_back('}');
    }
    out += R"(],"confidence":)";
    json::AppendDouble(out, odds.probabilities[odds.best] * odds.label_mass);
    out.push_back('}');
  }

  std::string SystemOne(const UsageEvent& usage, const std::vector<DecisionOdds>& odds) const {
    std::string out = R"({"id":)";
    json::AppendString(out, options_.id);
    AppendFormat(out, R"(,"object":"structured_decision","created":{},"model":)", options_.created);
    json::AppendString(out, options_.model_name());
    out += R"(,"answers":{)";
    for (size_t i = 0; i < odds.size(); ++i) {
      if (i > 0) out.push_back(',');
      json::AppendString(out, request_->questions[i].id);
      out.push_back(':');
      AppendSystemOne(out, request_->questions[i], odds[i]);
    }
    AppendFormat(out, R"(}},"usage":{{"input_tokens":{},"output_tokens":{}}},"diagnostics":{{)",
                 usage.prompt_tokens, usage.completion_tokens);
    for (size_t i = 0; i < odds.size(); ++i) {
      if (i > 0) out.push_back(',');
      json::AppendString(out, request_->questions[i].id);
      out += R"(:{"label_mass":)";
      json::AppendDouble(out, odds[i].label_mass);
      AppendFormat(out, R"(,"argmax_is_label":{}}})", reads_[i].argmax_is_label);
    }
    return out + "}}";
  }

  std::string Decisions(const UsageEvent& usage, const std::vector<DecisionOdds>& odds) const {
    std::string out = R"({"model":)";
    json::AppendString(out, options_.model_name());
    out += R"(,"answers":[)";
    for (size_t i = 0; i < odds.size(); ++i) {
      if (i > 0) out.push_back(',');
      AppendDecision(out, request_->questions[i], odds[i]);
    }
    AppendFormat(out,
                 R"(],"usage":{{"input_tokens":{},"input_tokens_details":{{"cached_tokens":{},)"
                 R"("cache_write_tokens":0}},"output_tokens":{},"output_tokens_details":)"
                 R"({{"reasoning_tokens":0}},"total_tokens":{}}}}})",
                 usage.prompt_tokens,
                 options_.model->config.enable_prompt_tokens_details ? cached_tokens_ : 0,
                 usage.completion_tokens, usage.prompt_tokens + usage.completion_tokens);
    return out;
  }

  void Send(const UsageEvent& usage) {
    std::vector<DecisionOdds> odds;
    for (size_t i = 0; i < reads_.size(); ++i) {
      if (reads_[i].logprobs.empty()) {
        return client_->Send(
            ErrorResponse(ServiceUnavailable("the request was aborted before all questions were "
                                             "read; ask again"),
                          options_.model->config.dialect));
      }
      odds.push_back(OddsOf(reads_[i], request_->questions[i].options.size()));
    }
    const bool is_system_one = request_->shape == DecisionRequest::Shape::kSystemOne;
    client_->Send(JsonResponse(is_system_one ? SystemOne(usage, odds) : Decisions(usage, odds)));
  }

  const std::shared_ptr<const DecisionRequest> request_;
  const AnswerOptions options_;
  const std::shared_ptr<ResponseWriter> client_;
  std::vector<DecisionRead> reads_;  // indexed by question
  int64_t cached_tokens_ = 0;        // total of all questions
};

}  // namespace

DecisionOdds OddsOf(const DecisionRead& read, size_t num_options) {
  DecisionOdds odds;
  odds.probabilities.resize(num_options);
  const double largest = *std::ranges::max_element(read.logprobs);
  double total = 0;
  for (size_t i = 0; i < read.logprobs.size(); ++i) {
    const double weight = std::exp(read.logprobs[i] - largest);
    odds.probabilities[i % num_options] += weight;
    total += weight;
    odds.label_mass += std::exp(read.logprobs[i]);
  }
  for (double& probability : odds.probabilities) probability /= total;
  odds.best = static_cast<size_t>(std::ranges::max_element(odds.probabilities) -
                                  odds.probabilities.begin());
  return odds;
}

std::function<WriterFactory> MakeDecisionWriter(DecisionRequest request) {
  return [request = std::make_shared<const DecisionRequest>(std::move(request))](
             AnswerOptions options, std::shared_ptr<ResponseWriter> client) {
    return std::make_unique<DecisionWriter>(request, std::move(options), std::move(client));
  };
}

}  // namespace sluice
