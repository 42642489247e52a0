#include "server/api/pooling/pooling_request.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "chat/jinja/text.h"
#include "engine/adapters.h"
#include "server/api/answer/answer_plan.h"
#include "server/api/request/conversation.h"
#include "server/api/request/prompt.h"

namespace sluice {
namespace {

// The limit of OpenAI's API.
constexpr size_t kMaxInputs = 2048;

constexpr std::array<std::string_view, 2> kEncodings = {"float", "base64"};
constexpr std::array<std::string_view, 1> kTypes = {"float32"};
constexpr std::array<std::string_view, 3> kEndiannesses = {"native", "little", "big"};

struct Inputs {
  std::vector<std::string> texts;
  std::vector<std::vector<int64_t>> ids;
};

bool AreIntegers(const json::Value::Array& list) {
  return !list.empty() && std::ranges::all_of(list, &json::Value::is_integer);
}

std::vector<int64_t> Integers(const json::Value::Array& list) {
  std::vector<int64_t> ids;
  ids.reserve(list.size());
  for (const json::Value& id : list) ids.push_back(id.as_integer());
  return ids;
}

void ReadInput(FieldReader& reader, Inputs& inputs) {
  const json::Value* input = reader.Raw("input");
  if (input == nullptr) return reader.AddMissing("input");
  if (input->is_string()) return inputs.texts.push_back(input->as_string());
  const bool is_list = input->is_array() && !input->as_array().empty();
  if (is_list && AreIntegers(input->as_array()))
    return inputs.ids.push_back(Integers(input->as_array()));
  constexpr std::string_view kExpected =
      "a string, or a list of strings, token ids or lists of token ids that is not empty";
  if (!is_list) return reader.Add("input", kExpected, *input);
  const json::Value::Array& list = input->as_array();
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].is_string() && inputs.ids.empty()) {
      inputs.texts.push_back(list[i].as_string());
    } else if (list[i].is_array() && AreIntegers(list[i].as_array()) && inputs.texts.empty()) {
      inputs.ids.push_back(Integers(list[i].as_array()));
    } else {
      return reader.Add(fmt::format("input.{}", i), kExpected, list[i]);
    }
  }
}

ApiStatus CheckDimensions(const ModelContext& model, const PoolingConfig& pooling,
                          int64_t dimensions) {
  const std::string shown = std::to_string(dimensions);
  if (!pooling.is_matryoshka) {
    return BadParameter(
        fmt::format("Model \"{}\" does not support matryoshka representation, changing output "
                    "dimensions will lead to poor results. If it does, start the server with "
                    "--hf-overrides '{{\"is_matryoshka\": true}}'.",
                    model.name()),
        "dimensions", shown);
  }
  const std::vector<int64_t>& known = pooling.dimensions;
  if (!known.empty() && std::find(known.begin(), known.end(), dimensions) == known.end()) {
    return BadParameter(fmt::format("Model \"{}\" only supports [{}] matryoshka dimensions, use "
                                    "other output dimensions will lead to poor results.",
                                    model.name(), fmt::join(known, ", ")),
                        "dimensions", shown);
  }
  const int64_t most = model.engine->info().VectorSize();
  if (dimensions >= 1 && dimensions <= most) return {};
  return BadParameter(fmt::format("dimensions must be from 1 to {}, the model's own", most),
                      "dimensions", shown);
}

ApiResult<std::vector<int32_t>> EncodeConversation(const RouteCall& call,
                                                   const PoolingFields& fields,
                                                   const ConversationFields& conversation,
                                                   bool add_special_tokens) {
  API_ASSIGN_OR_RETURN(RenderedConversation rendered,
                       RenderConversation(call, conversation, conversation.messages));
  API_ASSIGN_OR_RETURN(Prompt prompt, PromptFromText(std::move(rendered.text), add_special_tokens,
                                                     fields.common, *call.model));
  return std::move(prompt.tokens);
}

}  // namespace

PoolingFields ReadPoolingFields(FieldReader& reader) {
  PoolingFields fields;
  SamplingFields& common = fields.common;
  reader.Read("model", common.model);
  reader.Check<std::string>("user", {.nullable = true});
  reader.Read("truncate_prompt_tokens", common.truncate_prompt_tokens, {.min = -1});
  constexpr std::array<std::string_view, 2> kSides = {"left", "right"};
  reader.Read("truncation_side", common.truncation_side, {.one_of = kSides});
  reader.Read("priority", common.priority, {.within_int64 = true});
  reader.Read("cache_salt", common.cache_salt, {.nullable = true});
  reader.Read("request_id", common.request_id);
  reader.Read("add_special_tokens", fields.add_special_tokens);
  reader.Read("use_activation", fields.use_activation);
  reader.Read("dimensions", fields.dimensions);
  reader.Read("encoding_format", fields.encoding, {.nullable = true, .one_of = kEncodings});
  reader.Check<std::string>("embed_dtype", {.one_of = kTypes});
  reader.Read("endianness", fields.endianness, {.one_of = kEndiannesses});
  return fields;
}

ApiStatus CheckPooling(const RouteCall& call, const PoolingFields& fields,
                       std::optional<ModelTask> task) {
  API_RETURN_IF_ERROR(call.model->CheckName(fields.common.model));
  const std::optional<PoolingConfig>& pooling = call.model->engine->info().pooling;
  if (!pooling) {
    return BadRequest(
        fmt::format("{} is for pooling models, but this server generates text: start it with "
                    "--runner pooling, or use /v1/completions or /v1/chat/completions.",
                    call.route.path));
  }
  if (task && *task != pooling->task) {
    const bool embeds = pooling->task == ModelTask::kEmbed;
    return BadRequest(fmt::format(
        "{} is not supported by this server, whose model returns {}: use {}, or start it with "
        "--convert {}.",
        call.route.path, embeds ? "embeddings" : "scores of classes",
        embeds ? "/v1/embeddings" : "/classify or /score", embeds ? "classify" : "embed"));
  }
  if (fields.dimensions) return CheckDimensions(*call.model, *pooling, *fields.dimensions);
  return {};
}

ApiResult<PoolingJob> MakePoolingJob(const RouteCall& call, const PoolingFields& fields,
                                     std::string_view prefix) {
  PoolingJob job;
  API_ASSIGN_OR_RETURN(const std::string id, RequestIdOf(call.request, fields.common));
  job.id = fmt::format("{}{}", prefix, id);
  API_ASSIGN_OR_RETURN(job.priority, PriorityOf(call.request, fields.common, call.api.config));
  API_ASSIGN_OR_RETURN(job.engine, EngineOf(call.request, call.model->engine->info()));
  job.cache_salt = fields.common.cache_salt;
  API_ASSIGN_OR_RETURN(job.adapter, call.model->FindAdapter(fields.common.model));
  job.model_name = job.adapter == nullptr ? call.model->name() : job.adapter->name();
  return job;
}

ApiResult<std::vector<int32_t>> EncodePooled(const RouteCall& call, const PoolingFields& fields,
                                             std::string text, const std::string* prompt) {
  const PoolingConfig& pooling = *call.model->engine->info().pooling;
  if (prompt == nullptr) prompt = &pooling.prompt;
  if (!prompt->empty()) text = *prompt + text;
  if (pooling.lower_case) text = jinja::Lower(text);
  API_ASSIGN_OR_RETURN(Prompt made, PromptFromText(std::move(text), fields.add_special_tokens,
                                                   fields.common, *call.model));
  return std::move(made.tokens);
}

ApiResult<std::vector<int32_t>> EncodeMessages(
    const RouteCall& call, const PoolingFields& fields,
    const std::pair<std::string_view, std::string>& first,
    const std::pair<std::string_view, std::string>& second, bool add_special_tokens,
    const json::Value& template_kwargs) {
  json::Value::Array messages;
  for (const auto* one : {&first, &second}) {
    json::Value& message = messages.emplace_back(json::Value::Object{});
    message.Set("role", json::Value(std::string(one->first)));
    message.Set("content", json::Value(one->second));
  }
  ConversationFields conversation;
  conversation.add_generation_prompt = false;
  conversation.messages = json::Value(std::move(messages));
  conversation.chat_template_kwargs = template_kwargs;
  return EncodeConversation(call, fields, conversation, add_special_tokens);
}

ApiStatus AddInputs(const RouteCall& call, FieldReader& reader, PoolingFields& fields,
                    PoolingJob& job) {
  Inputs inputs;
  const json::Value& body = reader.object();
  const bool is_chat = body.Find("input") == nullptr && body.Find("messages") != nullptr;
  ConversationFields conversation;
  conversation.add_generation_prompt = false;
  if (is_chat) {
    conversation = ReadConversation(reader);
    if (body.Find("add_generation_prompt") == nullptr) conversation.add_generation_prompt = false;
    fields.add_special_tokens = conversation.add_special_tokens;
  } else {
    ReadInput(reader, inputs);
  }
  if (!reader.errors()->empty()) return ValidationFailed(*reader.errors());
  if (is_chat) {
    API_ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                         EncodeConversation(call, fields, conversation, fields.add_special_tokens));
    job.prompts.push_back({std::move(tokens)});
  }
  const size_t count = inputs.texts.size() + inputs.ids.size();
  if (count > kMaxInputs) {
    return BadParameter(
        fmt::format("at most {} inputs fit into one request, got {}", kMaxInputs, count), "input");
  }
  for (std::string& text : inputs.texts) {
    API_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, EncodePooled(call, fields, std::move(text)));
    job.prompts.push_back({std::move(tokens)});
    if (call.client->closed()) return {};
  }
  for (const std::vector<int64_t>& ids : inputs.ids) {
    API_ASSIGN_OR_RETURN(Prompt prompt, PromptFromIds(ids, fields.common, *call.model));
    job.prompts.push_back({std::move(prompt.tokens)});
  }
  return {};
}

}  // namespace sluice
