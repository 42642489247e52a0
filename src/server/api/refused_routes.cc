// Routes of vLLM that this server does not have: what is wrong with the request is said as vLLM
// says it, then that the route is not served.
#include <fmt/format.h>

#include "base/json.h"
#include "server/api/api.h"
#include "server/api/field_reader.h"
#include "server/api/request_body.h"

namespace sluice {
namespace {

// The error shape of Anthropic's API.
HttpResponse MessagesError(const ApiError& error) {
  HttpResponse response;
  response.status = error.status;
  response.body = R"({"type":"error","error":{"type":)";
  json::AppendString(response.body, error.type);
  response.body += R"(,"message":)";
  json::AppendString(response.body, error.message);
  response.body += "}}";
  return response;
}

ApiStatus RequireFields(const json::Value& body, std::initializer_list<const char*> names) {
  if (!body.is_object()) return NotAnObject(body);
  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  reader.OptionalString("model");
  for (const char* name : names) {
    if (body.Find(name) == nullptr) reader.AddMissing(name);
  }
  if (!errors.empty()) return ValidationFailed(errors);
  return {};
}

ApiStatus CheckModel(const json::Value& body, const ModelContext& model) {
  const json::Value* name = body.Find("model");
  if (name == nullptr || !name->is_string()) return {};
  return model.CheckName(name->as_string());
}

ApiError ScaleOutClosed() {
  ApiError error;
  error.status = 403;
  error.type = "PermissionDeniedError";
  error.message =
      "Scale-out endpoints are not part of this server; use /v1/completions or "
      "/v1/chat/completions.";
  return error;
}

ApiStatus RefuseScaling(const json::Value& body) {
  if (!body.is_object()) return NotAnObject(body);
  ApiError error;
  error.type = "Bad Request";
  error.message = body.Find("new_data_parallel_size") == nullptr
                      ? "new_data_parallel_size is required"
                      : "This server is one engine in one process and cannot be scaled.";
  return tl::unexpected<ApiError>(std::move(error));
}

}  // namespace

void Api::Refused(const HttpRequest& request, Writer writer, Model model) {
  const std::string_view path = WithoutRoot(request.path);
  if (path.ends_with("/render") || path.starts_with("/inference/"))
    return writer->Send(Refusal(ScaleOutClosed()));
  ApiResult<json::Value> body = ParseRequestBody(request);
  if (!body) return writer->Send(Refusal(body.error()));

  if (path.starts_with("/v1/messages")) {
    const ApiStatus fields = path == "/v1/messages"
                                 ? RequireFields(*body, {"model", "messages", "max_tokens"})
                                 : RequireFields(*body, {"model", "messages"});
    if (!fields) return writer->Send(Refusal(fields.error()));
    if (const ApiStatus known = CheckModel(*body, *model); !known)
      return writer->Send(MessagesError(known.error()));
    return writer->Send(MessagesError(
        BadRequest(fmt::format("{} is not served; use /v1/chat/completions.", path)).value()));
  }
  ApiStatus status;
  if (path == "/scale_elastic_ep") {
    status = RefuseScaling(*body);
  } else {
    const bool scoring = path == "/generative_scoring";
    status = scoring ? RequireFields(*body, {"query", "items", "label_token_ids"})
                     : RequireFields(*body, {"input"});
    if (status) status = CheckModel(*body, *model);
    if (status) {
      status = BadRequest(
          fmt::format("{} is not served; use {}.", path,
                      scoring ? "/v1/completions with echo and logprobs" : "/v1/chat/completions"));
    }
  }
  writer->Send(Refusal(status.error()));
}

}  // namespace sluice
