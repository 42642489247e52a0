// GET /v1/models and one of them.
#include <algorithm>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/json.h"
#include "engine/adapters.h"
#include "server/api/context/route_table.h"

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

// What the clients of Mistral and Anthropic need in a card; each has its own value of "type".
std::string ClientFields(const ModelContext& model, const std::string& name, bool for_anthropic) {
  const std::time_t created = model.created;
  std::tm time{};
  gmtime_r(&created, &time);
  std::string out =
      fmt::format(R"(,"type":"{}","display_name":)", for_anthropic ? "model" : "base");
  json::AppendString(out, name);
  return out + fmt::format(R"(,"created_at":"{:%Y-%m-%dT%H:%M:%SZ}","capabilities":{{)"
                           R"("completion_chat":{},"completion_fim":false,"function_calling":{},)"
                           R"("fine_tuning":false}}}})",
                           time, !model.templates.empty(), model.tool_parser != nullptr);
}

// The card of the model, or of an adapter if `adapter` is not null.
void AppendModelCard(std::string& out, const ModelContext& model, const std::string& name,
                     bool for_anthropic, const AdapterSource* adapter = nullptr) {
  out += R"({"id":)";
  json::AppendString(out, name);
  out += fmt::format(R"(,"object":"model","created":{},"owned_by":"{}")", model.created,
                     OwnerName(model.config.dialect));
  if (model.config.dialect == ApiDialect::kTrtllm) {
    out += ClientFields(model, name, for_anthropic);
    return;
  }
  out += R"(,"root":)";
  json::AppendString(out,
                     adapter == nullptr ? model.config.model_argument : adapter->path.string());
  out += R"(,"parent":)";
  if (adapter == nullptr) {
    out += "null";
  } else {
    json::AppendString(out, model.IsBaseName(adapter->base) ? adapter->base : model.name());
  }
  out += fmt::format(
      R"(,"max_model_len":{},"permission":[{{"id":"modelperm-{}","object":"model_permission","created":{},)"
      R"("allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,)"
      R"("allow_view":true,"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}}])",
      adapter == nullptr ? std::to_string(model.max_model_len) : "null", RandomHex(16),
      model.created);
  out += ClientFields(model, name, for_anthropic);
}

bool IsAnthropic(const RouteCall& call) {
  return call.request.Header("anthropic-version") != nullptr;
}

std::vector<AdapterSource> AdaptersOf(const ModelContext& model) {
  const Adapters* const adapters = model.engine->adapters();
  return adapters == nullptr ? std::vector<AdapterSource>() : adapters->List();
}

ApiStatus Models(const RouteCall& call) {
  API_RETURN_IF_ERROR(CheckModelIsLoaded(call));
  std::string body = R"({"object":"list","data":[)";
  for (const std::string& name : call.model->names) {
    if (&name != call.model->names.data()) body.push_back(',');
    AppendModelCard(body, *call.model, name, IsAnthropic(call));
  }
  std::string last = call.model->names.back();
  for (const AdapterSource& adapter : AdaptersOf(*call.model)) {
    last = adapter.name;
    body.push_back(',');
    AppendModelCard(body, *call.model, adapter.name, IsAnthropic(call), &adapter);
  }
  body.push_back(']');
  if (IsAnthropic(call)) {  // its client asks for pages
    body += R"(,"has_more":false,"first_id":)";
    json::AppendString(body, call.model->names.front());
    body += R"(,"last_id":)";
    json::AppendString(body, last);
  }
  call.client->Send(JsonResponse(body + "}"));
  return {};
}

ApiStatus OneModel(const RouteCall& call) {
  API_RETURN_IF_ERROR(CheckModelIsLoaded(call));
  const std::string name(call.path.substr(kModelsPrefix.size()));
  API_RETURN_IF_ERROR(call.model->CheckName(name));
  std::string body;
  const std::vector<AdapterSource> adapters = AdaptersOf(*call.model);
  const auto adapter =
      std::find_if(adapters.begin(), adapters.end(),
                   [&](const AdapterSource& candidate) { return candidate.name == name; });
  AppendModelCard(body, *call.model, name, IsAnthropic(call),
                  adapter == adapters.end() ? nullptr : &*adapter);
  call.client->Send(JsonResponse(std::move(body)));
  return {};
}

}  // namespace

std::vector<Route> ModelRoutes() {
  return {
      OnIoThread("/v1/models", {"GET"}, RouteGate::kAlways, Models, "The names of the model.",
                 "ModelList"),
      OnIoThread("/v1/models/{model_id}", {"GET"}, RouteGate::kNotVllm, OneModel, "One of them.",
                 "ModelCard"),
  };
}

}  // namespace sluice
