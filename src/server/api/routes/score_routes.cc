// POST /score and /rerank: how well texts match others. A classifier reads both texts in one
// prompt; with an embedding model the score is the cosine of two vectors.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "server/api/common/model_context.h"
#include "server/api/context/route_table.h"
#include "server/api/pooling/pooled_vector.h"
#include "server/api/pooling/pooling_request.h"
#include "server/api/request/prompt.h"

namespace sluice {
namespace {

constexpr size_t kMaxPairs = 2048;

// The texts to compare. `first` has one text, or as many as `second`.
struct Pairs {
  std::vector<std::string> first, second;
  size_t size() const { return second.size(); }
  size_t FirstOf(size_t pair) const { return first.size() == 1 ? 0 : pair; }
};

// Fields of scoring requests in addition to PoolingFields.
struct ScoringFields {
  int64_t max_tokens_per_query = 0;  // 0: no limit
  int64_t max_tokens_per_doc = 0;
  json::Value template_kwargs;  // an object or null
};

ScoringFields ReadScoringFields(FieldReader& reader) {
  ScoringFields fields;
  reader.Read("max_tokens_per_query", fields.max_tokens_per_query, {.nullable = true, .min = 0});
  reader.Read("max_tokens_per_doc", fields.max_tokens_per_doc, {.nullable = true, .min = 0});
  const json::Value::Object* kwargs = nullptr;
  if (reader.Read("chat_template_kwargs", kwargs, {.nullable = true}))
    fields.template_kwargs = *reader.Raw("chat_template_kwargs");
  std::optional<std::string> instruction;
  reader.Read("instruction", instruction);
  if (!instruction) return fields;
  if (!fields.template_kwargs.is_object())
    fields.template_kwargs = json::Value(json::Value::Object{});
  if (fields.template_kwargs.Find("instruction") == nullptr)
    fields.template_kwargs.Set("instruction", *std::move(instruction));
  return fields;
}

// Truncates each text to its first `most` tokens.
ApiStatus CutTexts(const ModelContext& model, std::string_view field, int64_t most,
                   std::vector<std::string>& texts) {
  if (most == 0) return {};
  if (most >= model.max_model_len) {
    return BadParameter(fmt::format("{} ({}) must be less than max_model_len ({})", field, most,
                                    model.max_model_len),
                        field, std::to_string(most));
  }
  for (std::string& text : texts) {
    API_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                         EncodeText(model, text, /*add_special_tokens=*/false));
    if (std::ssize(ids) <= most) continue;
    text = model.tokenizer->Decode({ids.data(), static_cast<size_t>(most)},
                                   /*skip_special_tokens=*/false);
    // Removes a character whose tokens are only partly left.
    constexpr std::string_view kCut = "\xEF\xBF\xBD";
    while (text.ends_with(kCut)) text.resize(text.size() - kCut.size());
  }
  return {};
}

using Scores = std::vector<double>;
// Writes the body of an answer.
using ScoreWriter = std::function<std::string(const Scores& scores, int64_t num_tokens)>;

// Returns the text of a string or of {"text": ...}, whose other members are ignored; null for other
// values.
const std::string* TextOf(const json::Value& value) {
  const json::Value* text = value.is_object() ? value.Find("text") : &value;
  return text != nullptr && text->is_string() ? &text->as_string() : nullptr;
}

// Reads a text: a string or {"text": ...}.
void ReadText(FieldReader& reader, std::string_view name, std::string& text) {
  const json::Value* value = reader.Raw(name);
  if (value == nullptr) return reader.AddMissing(name);
  if (const std::string* found = TextOf(*value)) {
    text = *found;
  } else {
    reader.Add(name, R"(a text or {"text": "..."})", *value);
  }
}

// Reads a text or a list of texts.
void ReadTexts(FieldReader& reader, std::string_view name, std::vector<std::string>& texts) {
  const json::Value* value = reader.Raw(name);
  const bool is_list = value != nullptr && value->is_array();
  if (!is_list) return ReadText(reader, name, texts.emplace_back());
  for (size_t i = 0; i < value->as_array().size(); ++i) {
    const json::Value& item = value->as_array()[i];
    if (const std::string* found = TextOf(item)) {
      texts.push_back(*found);
    } else {
      reader.Add(fmt::format("{}.{}", name, i), R"(a text or {"text": "..."})", item);
    }
  }
}

ApiStatus CheckPairs(const Pairs& pairs) {
  if (pairs.first.empty()) return BadRequest("At least one text element must be given");
  if (pairs.second.empty()) return BadRequest("At least one text_pair element must be given");
  if (pairs.first.size() > 1 && pairs.first.size() != pairs.second.size())
    return BadRequest("Input lengths must be either 1:1, 1:N or N:N");
  if (pairs.size() > kMaxPairs) {
    return BadRequest(
        fmt::format("at most {} pairs fit into one request, got {}", kMaxPairs, pairs.size()));
  }
  return {};
}

// Whether tokenizer_config.json lists token types among the inputs; true if it lists no inputs.
bool GivesTokenTypes(const Tokenizer& tokenizer) {
  const json::Value* names = tokenizer.config().Find("model_input_names");
  if (names == nullptr || !names->is_array()) return true;
  return std::ranges::find(names->as_array(), json::Value("token_type_ids")) !=
         names->as_array().end();
}

// Encodes both texts with the tokenizer's separator tokens between them.
ApiResult<PooledPrompt> EncodeSeparated(const RouteCall& call, const PoolingFields& fields,
                                        const std::string& first, const std::string& second) {
  const ModelContext& model = *call.model;
  API_ASSIGN_OR_RETURN(Tokenizer::Pair pair, PairFromTexts(first, second, fields.common, model));
  PooledPrompt prompt{std::move(pair.ids)};
  const auto begin = std::ranges::find(pair.types, int8_t{1});
  const int64_t num_types = model.engine->info().pooling->num_token_types;
  // A model without token types, or one whose tokenizer does not output them, was trained with the
  // same type for all tokens.
  if (begin == pair.types.end() || num_types == 0 || !GivesTokenTypes(*model.tokenizer))
    return prompt;
  if (num_types < 2 || std::count(begin, pair.types.end(), 0) > 0) {
    return BadRequest(
        "this model's tokenizer distinguishes two texts by token types that the model does not "
        "have: send them to /classify as one text, or use another reranker.");
  }
  prompt.second_text = static_cast<int32_t>(begin - pair.types.begin());
  return prompt;
}

// Returns the prompt in which a classifier reads both texts: joined by an encoder's tokenizer, else
// by the chat template of the command line, else concatenated.
ApiResult<PooledPrompt> EncodePair(const RouteCall& call, const PoolingFields& fields,
                                   const ScoringFields& scoring, const std::string& first,
                                   const std::string& second) {
  if (call.model->engine->info().pooling->separates_texts)
    return EncodeSeparated(call, fields, first, second);
  if (call.api.config.chat_template.empty()) {
    API_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, EncodePooled(call, fields, first + second));
    return PooledPrompt{std::move(tokens)};
  }
  API_ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                       EncodeMessages(call, fields, {"query", first}, {"document", second},
                                      fields.add_special_tokens, scoring.template_kwargs));
  return PooledPrompt{std::move(tokens)};
}

double Cosine(const std::vector<float>& a, const std::vector<float>& b) {
  const auto dot = [](const std::vector<float>& x, const std::vector<float>& y) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += double{x[i]} * double{y[i]};
    return sum;
  };
  return dot(a, b) / std::max(std::sqrt(dot(a, a) * dot(b, b)), 1e-12);
}

// Returns the cosines of the pairs. `vectors`: the vectors of `first`, then the vectors of
// `second`.
Scores CosinesOf(const Pairs& pairs, const std::vector<std::vector<float>>& vectors) {
  Scores scores;
  for (size_t i = 0; i < pairs.size(); ++i)
    scores.push_back(Cosine(vectors[pairs.FirstOf(i)], vectors[pairs.first.size() + i]));
  return scores;
}

// Adds the prompts: all texts for a model that embeds, all pairs for a classifier.
ApiStatus AddPairs(const RouteCall& call, const PoolingFields& fields, const ScoringFields& scoring,
                   const Pairs& pairs, bool embeds, PoolingJob& job) {
  if (embeds) {
    for (const auto* texts : {&pairs.first, &pairs.second}) {
      for (const std::string& text : *texts) {
        API_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, EncodePooled(call, fields, text));
        job.prompts.push_back({std::move(tokens)});
      }
    }
    return {};
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    API_ASSIGN_OR_RETURN(
        PooledPrompt prompt,
        EncodePair(call, fields, scoring, pairs.first[pairs.FirstOf(i)], pairs.second[i]));
    job.prompts.push_back(std::move(prompt));
  }
  return {};
}

// Number of tokens in all pairs.
int64_t CountTokens(const Pairs& pairs, bool embeds, const PoolingJob& job) {
  size_t count = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    count += embeds ? job.prompts[pairs.FirstOf(i)].tokens.size() +
                          job.prompts[pairs.first.size() + i].tokens.size()
                    : job.prompts[i].tokens.size();
  }
  return static_cast<int64_t>(count);
}

ApiStatus StartScores(const RouteCall& call, const PoolingFields& fields,
                      const ScoringFields& scoring, Pairs pairs, PoolingJob job,
                      ScoreWriter writer) {
  API_RETURN_IF_ERROR(CheckPairs(pairs));
  const EngineInfo& info = call.model->engine->info();
  const bool embeds = info.pooling->task == ModelTask::kEmbed;
  if (!embeds && info.model.spec.ResultSize() != 1) {
    return BadRequest(
        fmt::format("Score API is only enabled for num_labels == 1, and this model "
                    "has {}; use /classify.",
                    info.model.spec.ResultSize()));
  }
  API_RETURN_IF_ERROR(
      CutTexts(*call.model, "max_tokens_per_query", scoring.max_tokens_per_query, pairs.first));
  API_RETURN_IF_ERROR(
      CutTexts(*call.model, "max_tokens_per_doc", scoring.max_tokens_per_doc, pairs.second));
  API_RETURN_IF_ERROR(AddPairs(call, fields, scoring, pairs, embeds, job));
  const int64_t num_tokens = CountTokens(pairs, embeds, job);
  const auto answer = [pairs = std::move(pairs), model = call.model, fields, embeds, num_tokens,
                       writer = std::move(writer)](
                          std::vector<std::vector<float>> vectors) -> ApiResult<HttpResponse> {
    API_RETURN_IF_ERROR(CheckFinite(vectors));
    if (embeds) return JsonResponse(writer(CosinesOf(pairs, vectors), num_tokens));
    Scores scores;
    for (std::vector<float>& vector : vectors) {
      FinishVector(*model->engine->info().pooling, fields, vector);
      scores.push_back(vector.front());
    }
    return JsonResponse(writer(scores, num_tokens));
  };
  return StartPooling(call, std::move(job), answer);
}

// Names that /score accepts for its two sides.
constexpr std::pair<std::string_view, std::string_view> kSides[] = {
    {"queries", "documents"}, {"queries", "items"}, {"data_1", "data_2"}, {"text_1", "text_2"}};

ApiStatus AnswerScore(const RouteCall& call, const json::Value& body) {
  if (!body.is_object()) return NotAnObject(body);
  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  PoolingFields fields = ReadPoolingFields(reader);
  fields.dimensions.reset();
  const ScoringFields scoring = ReadScoringFields(reader);
  const auto* sides = std::find_if(std::begin(kSides), std::end(kSides), [&](const auto& names) {
    return body.Find(names.first) != nullptr && body.Find(names.second) != nullptr;
  });
  if (sides == std::end(kSides)) sides = std::begin(kSides);
  Pairs pairs;
  ReadTexts(reader, sides->first, pairs.first);
  ReadTexts(reader, sides->second, pairs.second);
  API_RETURN_IF_ERROR(CheckPooling(call, fields, std::nullopt));
  if (!errors.empty()) return ValidationFailed(errors);
  API_ASSIGN_OR_RETURN(PoolingJob job, MakePoolingJob(call, fields, "score-"));
  const ScoreWriter writer = [id = job.id, name = job.model_name](const Scores& scores,
                                                                  int64_t num_tokens) {
    std::string out = R"({"id":)";
    json::AppendString(out, id);
    out += fmt::format(R"(,"object":"list","created":{},"model":)", UnixSeconds());
    json::AppendString(out, name);
    out += R"(,"data":[)";
    for (size_t i = 0; i < scores.size(); ++i) {
      out += fmt::format(R"({}{{"index":{},"object":"score","score":{}}})", i > 0 ? "," : "", i,
                         scores[i]);
    }
    out.push_back(']');
    AppendPoolingUsage(out, num_tokens);
    out.push_back('}');
    return out;
  };
  return StartScores(call, fields, scoring, std::move(pairs), std::move(job), writer);
}

ApiStatus AnswerRerank(const RouteCall& call, const json::Value& body) {
  if (!body.is_object()) return NotAnObject(body);
  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  PoolingFields fields = ReadPoolingFields(reader);
  fields.dimensions.reset();
  const ScoringFields scoring = ReadScoringFields(reader);
  Pairs pairs;
  pairs.first.resize(1);
  ReadText(reader, "query", pairs.first.front());
  ReadTexts(reader, "documents", pairs.second);
  int64_t top_n = 0;
  reader.Read("top_n", top_n, {.nullable = true, .min = 0});
  API_RETURN_IF_ERROR(CheckPooling(call, fields, std::nullopt));
  if (!errors.empty()) return ValidationFailed(errors);
  API_ASSIGN_OR_RETURN(PoolingJob job, MakePoolingJob(call, fields, "rerank-"));
  const ScoreWriter writer = [id = job.id, name = job.model_name, top_n, documents = pairs.second](
                                 const Scores& scores, int64_t num_tokens) {
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    if (top_n > 0 && static_cast<size_t>(top_n) < order.size())
      order.resize(static_cast<size_t>(top_n));
    std::string out = R"({"id":)";
    json::AppendString(out, id);
    out += R"(,"model":)";
    json::AppendString(out, name);
    out += fmt::format(R"(,"usage":{{"prompt_tokens":{},"total_tokens":{}}},"results":[)",
                       num_tokens, num_tokens);
    for (const size_t& i : order) {
      out +=
          fmt::format(R"({}{{"index":{},"document":{{"text":)", &i == order.data() ? "" : ",", i);
      json::AppendString(out, documents[i]);
      out += fmt::format(R"(,"multi_modal":null}},"relevance_score":{}}})", scores[i]);
    }
    out += "]}";
    return out;
  };
  return StartScores(call, fields, scoring, std::move(pairs), std::move(job), writer);
}

}  // namespace

std::vector<Route> ScoreRoutes() {
  std::vector<Route> routes;
  for (const std::string_view path : {"/score", "/v1/score"}) {
    routes.push_back(WithBody(path, AnswerScore, "How well texts match other texts.",
                              "ScoreRequest", "ScoreList"));
  }
  for (const std::string_view path : {"/rerank", "/v1/rerank", "/v2/rerank"}) {
    routes.push_back(WithBody(path, AnswerRerank, "Texts in the order in which they match a query.",
                              "RerankRequest", "Ranking"));
  }
  return routes;
}

}  // namespace sluice
