// The routes with which a trainer replaces the weights: vLLM's routes, with the backends "disk" and
// "http".
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/append_format.h"
#include "base/ascii.h"
#include "checkpoint/checkpoint.h"
#include "server/api/common/field_reader.h"
#include "server/api/common/query.h"
#include "server/api/common/request_body.h"
#include "server/api/context/route_table.h"

namespace sluice {
namespace {

constexpr size_t kMostVersionBytes = 256;

ApiStatus SendMessage(const RouteCall& call, std::string_view message) {
  std::string body = R"({"message":)";
  json::AppendString(body, message);
  call.client->Send(JsonResponse(body + "}"));
  return {};
}

// Returns the body; an empty object if there is none.
ApiResult<json::Value> ObjectBody(const RouteCall& call) {
  if (call.request.body.empty()) return json::Value(json::Value::Object{});
  API_ASSIGN_OR_RETURN(json::Value body, ParseRequestBody(call.request));
  if (!body.is_object()) return NotAnObject(body);
  return body;
}

ApiResult<std::string> VersionOf(const json::Value& body, std::string_view field, bool required) {
  const json::Value* const version = body.Find(field);
  if ((version == nullptr || version->is_null()) && !required) return std::string();
  if (version == nullptr || !version->is_string()) return BadParameter("expected a text", field);
  if (version->as_string().empty() || version->as_string().size() > kMostVersionBytes)
    return BadParameter("expected a text of 1 to 256 bytes", field);
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; };
  if (std::ranges::any_of(version->as_string(), is_control))
    return BadParameter("expected a text without control characters", field);
  return version->as_string();
}

ApiStatus InitTransfer(const RouteCall& call) {
  API_ASSIGN_OR_RETURN(const json::Value body, ObjectBody(call));
  const json::Value* const info = body.Find("init_info");
  if (info == nullptr || !info->is_object()) return BadParameter("expected an object", "init_info");
  return SendMessage(call, "Weight transfer initialized");
}

ApiStatus ShutDownTransfer(const RouteCall& call) {
  return SendMessage(call, "Weight transfer shut down");
}

ApiStatus StartUpdate(const RouteCall& call) {
  call.api.weights->Start(*call.model->engine);
  return SendMessage(call, "Weight update started");
}

// Accepts a body that is a safetensors file with some of the tensors.
ApiStatus TakePiece(const RouteCall& call) {
  if (!call.api.config.takes_weight_uploads) {
    return BadParameter(
        "tensors in bodies need --weight-transfer-config '{\"backend\": \"http\"}'; send the "
        "folder "
        "of a checkpoint as {\"update_info\": {\"path\": ...}}",
        "Content-Type");
  }
  const std::string* const sha256 = call.request.Header("x-content-sha256");
  API_ASSIGN_OR_RETURN(const int64_t tensors,
                       call.api.weights->Add(*call.model->engine, call.request.body,
                                             sha256 == nullptr ? std::string_view() : *sha256));
  call.client->Send(
      JsonResponse(fmt::format(R"({{"message":"Weights updated","tensors":{},"bytes":{}}})",
                               tensors, call.request.body.size())));
  return {};
}

bool IsPiece(const HttpRequest& request) {
  const std::string* const type = request.Header("content-type");
  return type != nullptr && AsciiLower(*type).starts_with("application/octet-stream");
}

ApiStatus UpdateWeights(const RouteCall& call) {
  if (IsPiece(call.request)) return TakePiece(call);
  API_ASSIGN_OR_RETURN(const json::Value body, ObjectBody(call));
  const json::Value* const info = body.Find("update_info");
  if (info == nullptr || !info->is_object())
    return BadParameter("expected an object", "update_info");
  const json::Value* const path = info->Find("path");
  if (path == nullptr || !path->is_string()) {
    return BadParameter(
        "expected \"path\", the folder of a checkpoint; to send tensors instead, start the server "
        "with --weight-transfer-config '{\"backend\": \"http\"}' and post application/octet-stream",
        "update_info.path");
  }
  API_RETURN_IF_ERROR(call.api.weights->Load(*call.model->engine, path->as_string()));
  return SendMessage(call, "Weights updated");
}

ApiStatus FinishUpdate(const RouteCall& call) {
  API_ASSIGN_OR_RETURN(const json::Value body, ObjectBody(call));
  API_ASSIGN_OR_RETURN(const std::string version, VersionOf(body, "weight_version", false));
  API_RETURN_IF_ERROR(call.api.weights->Finish(*call.model->engine, version));
  return SendMessage(call, "Weight update finished");
}

ApiStatus UpdateVersion(const RouteCall& call) {
  API_ASSIGN_OR_RETURN(const json::Value body, ObjectBody(call));
  API_ASSIGN_OR_RETURN(const std::string version, VersionOf(body, "new_version", true));
  call.api.weights->SetVersion(version);
  std::string answer = R"({"success":true,"new_version":)";
  json::AppendString(answer, version);
  call.client->Send(JsonResponse(answer + "}"));
  return {};
}

// Appends the checkpoint's tensors, as the headers of its files list them.
ApiStatus AppendTensors(std::string& out, const std::filesystem::path& folder) {
  const Result<Checkpoint> checkpoint = Checkpoint::Open(folder);
  if (!checkpoint) return tl::unexpected<ApiError>(FromError(checkpoint.error()));
  out += R"(,"path":)";
  json::AppendString(out, folder.string());
  AppendFormat(out, R"(,"total_bytes":{},"tensors":[)", checkpoint->total_bytes());
  bool first = true;
  for (const auto& [name, tensor] : checkpoint->tensors()) {
    if (!std::exchange(first, false)) out.push_back(',');
    out += R"({"name":)";
    json::AppendString(out, tensor.info->name);
    AppendFormat(out, R"(,"dtype":"{}","shape":[{}]}})", ElementTypeName(tensor.info->type),
                 fmt::join(tensor.info->shape, ","));
  }
  out.push_back(']');
  return {};
}

// Sends vLLM's answer; with ?tensors=true, also the tensors of the weights in use.
ApiStatus WeightInfo(const RouteCall& call) {
  API_ASSIGN_OR_RETURN(const std::string tensors,
                       QueryChoice(call.request, "tensors", {"false", "true"}));
  std::string answer = R"({"weight_version":)";
  json::AppendString(answer, call.api.weights->version());
  if (tensors == "true")
    API_RETURN_IF_ERROR(AppendTensors(answer, call.model->engine->weights_folder()));
  call.client->Send(JsonResponse(answer + "}"));
  return {};
}

}  // namespace

std::vector<Route> WeightRoutes() {
  constexpr RouteGate kGate = RouteGate::kWeights;
  return {
      OnWorker("/init_weight_transfer_engine", {"POST"}, kGate, InitTransfer,
               "Has no effect: loading from folders needs no connection."),
      OnWorker("/shutdown_weight_transfer_engine", {"POST"}, kGate, ShutDownTransfer,
               "Nothing but an answer."),
      OnWorker("/start_weight_update", {"POST"}, kGate, StartUpdate,
               "Begins an update; an open update ends without any effect."),
      OnWorker("/update_weights", {"POST"}, kGate, UpdateWeights,
               "Loads a checkpoint's folder in addition to the weights in use, or stores a piece "
               "of a checkpoint: a safetensors file as application/octet-stream."),
      OnWorker("/finish_weight_update", {"POST"}, kGate, FinishUpdate,
               "Uses the new weights from the next step on."),
      OnWorker("/update_weight_version", {"POST"}, kGate, UpdateVersion,
               "Names the weights in use."),
      OnWorker("/weight_info", {"GET"}, kGate, WeightInfo,
               "The name of the weights; with ?tensors=true also their tensors."),
  };
}

}  // namespace sluice
