// POST /v2/embed: embeddings in the shape of Cohere's API.
#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "server/api/common/model_context.h"
#include "server/api/context/route_table.h"
#include "server/api/pooling/pooled_vector.h"
#include "server/api/pooling/pooling_request.h"

namespace sluice {
namespace {

constexpr size_t kMaxTexts = 2048;
constexpr std::array<std::string_view, 4> kVectorTypes = {"float", "binary", "ubinary", "base64"};
constexpr std::array<std::string_view, 3> kTruncations = {"NONE", "START", "END"};

struct CohereFields {
  PoolingFields pooling;
  std::vector<std::string> texts;
  std::vector<std::string> types;  // requested types of vectors, without duplicates
  std::optional<std::string> input_type;
  std::optional<int64_t> max_tokens;
  bool truncates = true;
};

CohereFields ReadCohereFields(FieldReader& reader) {
  CohereFields fields;
  SamplingFields& common = fields.pooling.common;
  reader.Read("model", common.model);
  reader.Read("input_type", fields.input_type);
  reader.Read("texts", fields.texts);
  std::vector<std::string> types;
  reader.Read("embedding_types", types, {.nullable = true});
  for (size_t i = 0; i < types.size(); ++i) {
    if (std::ranges::find(kVectorTypes, types[i]) == kVectorTypes.end()) {
      reader.Add(fmt::format("embedding_types.{}", i), "'float', 'binary', 'ubinary' or 'base64'",
                 json::Value(types[i]));
    } else if (std::ranges::find(fields.types, types[i]) == fields.types.end()) {
      fields.types.push_back(types[i]);
    }
  }
  if (fields.types.empty()) fields.types.emplace_back("float");
  reader.Read("output_dimension", fields.pooling.dimensions);
  reader.Read("priority", common.priority, {.within_int64 = true});
  reader.Read("max_tokens", fields.max_tokens, {.min = 1});
  std::string truncate = "END";
  reader.Read("truncate", truncate, {.one_of = kTruncations});
  fields.truncates = truncate != "NONE";
  common.refuses_long_texts = !fields.truncates;
  if (fields.truncates) common.truncate_prompt_tokens = fields.max_tokens.value_or(-1);
  if (truncate == "START") common.truncation_side = "left";
  return fields;
}

// Refuses images and inputs, bodies without texts, and more than kMaxTexts texts.
ApiStatus CheckInputs(const json::Value& body, const CohereFields& fields) {
  for (const char* name : {"images", "inputs"}) {
    const json::Value* value = body.Find(name);
    if (value != nullptr && !value->is_null()) {
      return BadParameter(fmt::format("{} are not supported, only texts: images have no embedding "
                                      "here",
                                      name),
                          name);
    }
  }
  if (fields.texts.empty()) {
    return BadRequest(
        "Exactly one of texts, images, or inputs must be provided, and it must be non-empty");
  }
  if (fields.texts.size() <= kMaxTexts) return {};
  return BadParameter(
      fmt::format("at most {} texts fit into one request, got {}", kMaxTexts, fields.texts.size()),
      "texts");
}

// Returns the model's prompt for the purpose of the texts, or "".
ApiResult<std::string> PurposePrompt(const PoolingConfig& pooling, const CohereFields& fields) {
  if (!fields.input_type) return std::string();
  const auto found = pooling.prompts.find(*fields.input_type);
  if (found != pooling.prompts.end()) return found->second;
  if (pooling.prompts.empty()) {
    return BadRequest(
        fmt::format("Unsupported input_type '{}'. This model does not define any "
                    "input_type task instructions.",
                    *fields.input_type));
  }
  std::vector<std::string_view> known;
  for (const auto& [purpose, prompt] : pooling.prompts) known.push_back(purpose);
  return BadRequest(fmt::format("Unsupported input_type '{}'. Supported values: {}",
                                *fields.input_type, fmt::join(known, ", ")));
}

// Encodes a text with the prompt for its purpose: as the system message if the model has a chat
// template, else as a prefix.
ApiResult<std::vector<int32_t>> EncodeText(const RouteCall& call, const CohereFields& fields,
                                           const std::string& prompt, const std::string& text) {
  if (prompt.empty()) return EncodePooled(call, fields.pooling, text);
  if (call.model->templates.Select(false) == nullptr)
    return EncodePooled(call, fields.pooling, text, &prompt);
  return EncodeMessages(call, fields.pooling, {"system", prompt}, {"user", text}, false);
}

// Appends one bit per element: 1 if the element is not negative. The first of eight elements is the
// highest bit of a byte.
void AppendBits(std::string& out, const std::vector<float>& vector, bool is_signed) {
  out.push_back('[');
  for (size_t i = 0; i < vector.size(); i += 8) {
    int byte = 0;
    for (size_t k = 0; k < 8; ++k) byte = byte << 1 | (vector[i + k] >= 0 ? 1 : 0);
    out += fmt::format("{}{}", i > 0 ? "," : "", is_signed ? byte - 128 : byte);
  }
  out.push_back(']');
}

void AppendVectors(std::string& out, const std::vector<std::vector<float>>& vectors,
                   const std::string& type) {
  PoolingFields written;
  written.encoding = type == "base64" ? "base64" : "float";
  written.endianness = "little";
  out += fmt::format(R"("{}":[)", type);
  for (size_t i = 0; i < vectors.size(); ++i) {
    if (i > 0) out.push_back(',');
    if (type.ends_with("binary"))
      AppendBits(out, vectors[i], type == "binary");
    else
      AppendVector(out, vectors[i], written);
  }
  out.push_back(']');
}

std::string WriteAnswer(const std::string& id, const CohereFields& fields,
                        const std::vector<std::vector<float>>& vectors, int64_t num_tokens) {
  std::string out = R"({"id":)";
  json::AppendString(out, id);
  out += R"(,"embeddings":{)";
  for (size_t i = 0; i < fields.types.size(); ++i) {
    if (i > 0) out.push_back(',');
    AppendVectors(out, vectors, fields.types[i]);
  }
  out += R"(},"texts":[)";
  for (size_t i = 0; i < fields.texts.size(); ++i) {
    if (i > 0) out.push_back(',');
    json::AppendString(out, fields.texts[i]);
  }
  out += fmt::format(
      R"(],"meta":{{"api_version":{{"version":"2"}},"billed_units":{{"input_tokens":{},"image_tokens":0}}}},)"
      R"("response_type":"embeddings_by_type"}})",
      num_tokens);
  return out;
}

ApiStatus AnswerEmbed(const RouteCall& call, const json::Value& body) {
  if (!body.is_object()) return NotAnObject(body);
  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  CohereFields fields = ReadCohereFields(reader);
  if (!errors.empty()) return ValidationFailed(errors);
  API_RETURN_IF_ERROR(CheckPooling(call, fields.pooling, ModelTask::kEmbed));
  API_RETURN_IF_ERROR(CheckInputs(body, fields));
  const EngineInfo& info = call.model->engine->info();
  const int64_t dimensions = fields.pooling.dimensions.value_or(info.VectorSize());
  const bool packs =
      std::ranges::any_of(fields.types, [](const auto& type) { return type.ends_with("binary"); });
  if (packs && dimensions % 8 != 0) {
    return BadRequest(
        fmt::format("Embedding dimension must be a multiple of 8 for binary embedding "
                    "types, but got {}.",
                    dimensions));
  }
  API_ASSIGN_OR_RETURN(const std::string prompt, PurposePrompt(*info.pooling, fields));
  API_ASSIGN_OR_RETURN(PoolingJob job, MakePoolingJob(call, fields.pooling, "embd-"));
  for (const std::string& text : fields.texts) {
    API_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, EncodeText(call, fields, prompt, text));
    const auto count = static_cast<int64_t>(tokens.size());
    if (!fields.truncates && count > fields.max_tokens.value_or(count)) {
      return BadRequest(
          fmt::format("Input of {} tokens exceeds max_tokens={} with truncate=NONE. "
                      "Set truncate to END or START to allow truncation.",
                      count, *fields.max_tokens));
    }
    job.prompts.push_back({std::move(tokens)});
    if (call.client->closed()) return {};
  }
  const auto answer = [id = job.id, model = call.model, fields = std::move(fields),
                       num_tokens = job.num_tokens()](
                          std::vector<std::vector<float>> vectors) -> ApiResult<HttpResponse> {
    API_RETURN_IF_ERROR(CheckFinite(vectors));
    for (std::vector<float>& vector : vectors)
      FinishVector(*model->engine->info().pooling, fields.pooling, vector);
    return JsonResponse(WriteAnswer(id, fields, vectors, num_tokens));
  };
  return StartPooling(call, std::move(job), answer);
}

}  // namespace

std::vector<Route> CohereRoutes() {
  return {WithBody("/v2/embed", AnswerEmbed, "Embeddings of texts, in the shape of Cohere's API.",
                   "CohereEmbedRequest", "CohereEmbeddings")};
}

}  // namespace sluice
