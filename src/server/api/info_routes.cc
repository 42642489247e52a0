// Routes that tell of the server: no body, answered at once.
#include <unistd.h>

#include <cstdlib>

#include <fmt/format.h>

#include "base/json.h"
#include "server/api/api.h"
#include "server/api/field_reader.h"
#include "server/api/openapi.h"
#include "server/api/python_text.h"

namespace sluice {
namespace {

constexpr std::string_view kModelsPrefix = "/v1/models/";

std::string_view OwnerName(ApiDialect dialect) {
  switch (dialect) {
    case ApiDialect::kVllm: return "vllm";
    case ApiDialect::kTrtllm: return "tensorrt_llm";
    case ApiDialect::kSluice: break;
  }
  return "sluice";
}

void AppendModelCard(std::string& out, const ModelContext& model, const std::string& name) {
  out += R"({"id":)";
  json::AppendString(out, name);
  out += fmt::format(R"(,"object":"model","created":{},"owned_by":"{}")", model.created,
                     OwnerName(model.config.dialect));
  if (model.config.dialect == ApiDialect::kTrtllm) {
    out.push_back('}');
    return;
  }
  out += R"(,"root":)";
  json::AppendString(out, model.config.model_argument);
  out += fmt::format(
      R"(,"parent":null,"max_model_len":{},"permission":[{{"id":"modelperm-{}","object":"model_permission","created":{},)"
      R"("allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,)"
      R"("allow_view":true,"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}}]}})",
      model.max_model_len, RandomHex(16), model.created);
}

HttpResponse Loading(ApiDialect dialect) {
  ApiError error;
  error.status = 503;
  error.type = "ServiceUnavailableError";
  error.message = "The model is still being loaded.";
  return ErrorResponse(error, dialect);
}

}  // namespace

void Api::Health(const HttpRequest&, Writer writer) {
  const Model current = model();
  HttpResponse response;
  if (current == nullptr || draining_ || !current->engine->healthy()) {
    response.status = 503;
    response.body = current == nullptr ? R"({"status":"loading"})"
                    : draining_        ? R"({"status":"draining"})"
                                       : R"({"status":"unhealthy"})";
  } else {
    response.body = R"({"status":"ok"})";
  }
  writer->Send(std::move(response));
}

void Api::Version(const HttpRequest&, Writer writer) {
  std::string body = R"({"version":)";
  json::AppendString(body, config_.version);
  writer->Send(JsonResponse(body + "}"));
}

void Api::Load(const HttpRequest&, Writer writer) {
  writer->Send(JsonResponse(fmt::format(
      R"({{"server_load":{}}})", config_.enable_server_load_tracking ? pending_->load() : 0)));
}

void Api::ShowMetrics(const HttpRequest& request, Writer writer) {
  if (config_.dialect != ApiDialect::kTrtllm) return Prometheus(request, std::move(writer));
  writer->Send(JsonResponse(metrics_->TakeIterations()));
}

void Api::Prometheus(const HttpRequest& request, Writer writer) {
  HttpResponse response;
  // What vLLM says of the same text: a plain GET is told the newer version.
  const bool newer = request.method == "GET" && !request.path.ends_with('/');
  response.content_type =
      fmt::format("text/plain; version={}; charset=utf-8", newer ? "1.0.0" : "0.0.4");
  const Model current = model();
  response.body = metrics_->Text(current != nullptr && current->engine->num_unfinished() == 0);
  writer->Send(std::move(response));
}

void Api::Models(const HttpRequest&, Writer writer) {
  const Model current = model();
  if (current == nullptr) return writer->Send(Loading(config_.dialect));
  std::string body = R"({"object":"list","data":[)";
  for (size_t i = 0; i < current->names.size(); ++i) {
    if (i > 0) body.push_back(',');
    AppendModelCard(body, *current, current->names[i]);
  }
  writer->Send(JsonResponse(body + "]}"));
}

void Api::OneModel(const HttpRequest& request, Writer writer) {
  const Model current = model();
  if (current == nullptr) return writer->Send(Loading(config_.dialect));
  const std::string name(WithoutRoot(request.path).substr(kModelsPrefix.size()));
  if (ApiStatus known = current->CheckName(name); !known)
    return writer->Send(Refusal(known.error()));
  std::string body;
  AppendModelCard(body, *current, name);
  writer->Send(JsonResponse(std::move(body)));
}

void Api::TokenizerInfo(const HttpRequest&, Writer writer) {
  const Model current = model();
  if (current == nullptr) return writer->Send(Loading(config_.dialect));
  json::Value info = current->tokenizer->config();
  if (!info.is_object()) info = json::Value(json::Value::Object{});
  std::erase_if(info.as_object(), [](const json::Value::Member& member) {
    return member.first == "extra_special_tokens" && !IsTruthy(&member.second);
  });
  if (const json::Value* added = info.Find("added_tokens_decoder");
      added != nullptr && added->is_object()) {
    json::Value flat{json::Value::Object{}};
    for (const auto& [id, token] : added->as_object()) {
      const json::Value* content = token.Find("content");
      // Ids are distinct; Set() would look for each of thousands, on an I/O thread.
      flat.as_object().emplace_back(id, content != nullptr ? *content : token);
    }
    info.Set("added_tokens_decoder", std::move(flat));
  }
  if (const ChatTemplate* chat_template = current->templates.Select(false)) {
    info.Set("chat_template", chat_template->source());
  }
  info.Set("truncation_side", "left");
  info.Set("name_or_path", config_.model_argument);
  info.Set("is_local", true);
  info.Set("local_files_only", true);
  info.Set("backend", "tokenizers");
  writer->Send(JsonResponse(json::Write(info)));
}

void Api::OpenApi(const HttpRequest&, Writer writer) {
  writer->Send(JsonResponse(OpenApiDocument(OpenRoutes(), config_)));
}

void Api::Docs(const HttpRequest&, Writer writer) {
  HttpResponse response;
  response.content_type = "text/html; charset=utf-8";
  response.body = DocsPage(OpenRoutes(), config_);
  writer->Send(std::move(response));
}

void Api::StoredResponse(const HttpRequest& request, Writer writer) {
  std::string_view id = WithoutRoot(request.path).substr(std::string_view("/v1/responses/").size());
  if (id.ends_with("/cancel")) id.remove_suffix(std::string_view("/cancel").size());
  ApiError error;
  error.status = 404;
  error.type = "invalid_request_error";
  error.param = "response_id";
  error.message = fmt::format("Response with id '{}' not found.", id.substr(0, 200));
  writer->Send(Refusal(error));
}

}  // namespace sluice
