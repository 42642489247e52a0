// POST /v1/load_lora_adapter and /v1/unload_lora_adapter.
#include <fmt/format.h>

#include "engine/adapters.h"
#include "server/api/common/field_reader.h"
#include "server/api/context/route_table.h"
#include "server/api/request/sampling_params.h"

namespace sluice {
namespace {

tl::unexpected<ApiError> InvalidInput(std::string message) {
  ApiError error;
  error.type = "InvalidUserInput";
  error.message = std::move(message);
  return tl::unexpected<ApiError>(std::move(error));
}

tl::unexpected<ApiError> NotFound(std::string message) {
  ApiError error;
  error.status = 404;
  error.type = "NotFoundError";
  error.message = std::move(message);
  return tl::unexpected<ApiError>(std::move(error));
}

ApiResult<Adapters*> AdaptersOf(const RouteCall& call) {
  Adapters* const adapters = call.model->engine->adapters();
  if (adapters == nullptr)
    return BadRequest("This server serves no LoRA adapters: start it with --enable-lora.");
  return adapters;
}

// Like vLLM, sends only the text, without a content type.
void SendText(const RouteCall& call, std::string text) {
  HttpResponse response = TextResponse(std::move(text));
  response.content_type.clear();
  call.client->Send(std::move(response));
}

ApiStatus LoadAdapter(const RouteCall& call, const json::Value& body) {
  if (!body.is_object()) return NotAnObject(body);
  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  std::string name, path;
  bool replace = false;
  reader.Read("lora_name", name, {.required = true});
  reader.Read("lora_path", path, {.required = true});
  reader.Read("load_inplace", replace);
  if (!errors.empty()) return ValidationFailed(errors);
  API_ASSIGN_OR_RETURN(Adapters* const adapters, AdaptersOf(call));
  if (name.empty() || path.empty())
    return InvalidInput("Both 'lora_name' and 'lora_path' must be provided.");
  API_RETURN_IF_ERROR(CheckNameLength("lora_name", name));
  if (call.model->IsBaseName(name)) {
    return InvalidInput(
        fmt::format("The lora adapter '{}' conflicts with a served base model.", name));
  }
  if (!replace && adapters->Has(name)) {
    return InvalidInput(
        fmt::format("The lora adapter '{}' has already been loaded. If you want to load the "
                    "adapter in place, set 'load_inplace' to True.",
                    name));
  }
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    return NotFound(
        fmt::format("Loading lora {} failed: No adapter found for {}", name, path.substr(0, 1000)));
  }
  const Status added = adapters->Add({.name = name, .path = path, .base = ""}, replace);
  if (!added && added.error().code == ErrorCode::kNotFound) {
    return NotFound(
        fmt::format("Loading lora {} failed: No adapter found for {}", name, path.substr(0, 1000)));
  }
  if (!added) return tl::unexpected<ApiError>(FromError(added.error()));
  SendText(call, fmt::format("Success: LoRA adapter '{}' added successfully.", name));
  return {};
}

ApiStatus UnloadAdapter(const RouteCall& call, const json::Value& body) {
  if (!body.is_object()) return NotAnObject(body);
  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  std::string name;
  std::optional<int64_t> id;
  reader.Read("lora_name", name, {.required = true});
  reader.Read("lora_int_id", id, {.nullable = true});
  if (!errors.empty()) return ValidationFailed(errors);
  API_ASSIGN_OR_RETURN(Adapters* const adapters, AdaptersOf(call));
  if (name.empty())
    return InvalidInput("'lora_name' needs to be provided to unload a LoRA adapter.");
  if (!adapters->Remove(name)) {
    return NotFound(fmt::format("The lora adapter '{}' cannot be found.", name.substr(0, 200)));
  }
  SendText(call, fmt::format("Success: LoRA adapter '{}' removed successfully.", name));
  return {};
}

}  // namespace

std::vector<Route> LoraRoutes() {
  return {
      WithGate(RouteGate::kRuntimeLora,
               WithBody("/v1/load_lora_adapter", LoadAdapter, "Serve one more LoRA adapter.",
                        "LoadLoraAdapter", "text")),
      WithGate(RouteGate::kRuntimeLora,
               WithBody("/v1/unload_lora_adapter", UnloadAdapter, "Stop serving a LoRA adapter.",
                        "UnloadLoraAdapter", "text")),
  };
}

}  // namespace sluice
