// The command ps: lists the models of a running server.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "cli/command.h"
#include "cli/remote.h"

namespace sluice::cli {
namespace {

std::string FieldText(const json::Value& model, std::string_view key) {
  const json::Value* found = model.Find(key);
  if (found == nullptr) return "-";
  if (found->is_string()) return found->as_string();
  return found->is_null() ? "-" : json::Write(*found);
}

}  // namespace

Result<int> RunServed(const options::Settings& settings) {
  ASSIGN_OR_RETURN(Remote remote,
                   RemoteAt(settings, settings.TextOr("url", "http://127.0.0.1:8000")));
  if (remote.url.path.ends_with("/v1")) remote.url.path.resize(remote.url.path.size() - 3);
  ASSIGN_OR_RETURN(const ClientResponse answer, remote.http().Get("/v1/models"));
  const auto body = json::Parse(answer.body);
  const json::Value* models = body ? body->Find("data") : nullptr;
  if (answer.status != 200 || models == nullptr || !models->is_array()) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("{} answers {} to /v1/models, and lists no models",
                            ServerText(remote.url), answer.status),
                "url");
  }
  if (settings.Flag("json")) {
    fmt::print("{}\n", json::Write(*models));
    return 0;
  }
  // A server with --models reports the state of each model.
  const auto state_of = [](const json::Value& model) {
    const json::Value* const status = model.Find("status");
    return status != nullptr && status->is_object() ? FieldText(*status, "value") : "";
  };
  const bool has_states = std::ranges::any_of(
      models->as_array(), [&](const json::Value& model) { return !state_of(model).empty(); });
  size_t width = 5;
  for (const json::Value& model : models->as_array())
    width = std::max(width, FieldText(model, "id").size());
  fmt::print("{:<{}}  {:>10}  {}{}\n", "MODEL", width, "TOKENS", has_states ? "STATE     " : "",
             "AT");
  for (const json::Value& model : models->as_array()) {
    fmt::print("{:<{}}  {:>10}  {}{}\n", FieldText(model, "id"), width,
               FieldText(model, "max_model_len"),
               has_states ? fmt::format("{:<10}", state_of(model)) : "", ServerText(remote.url));
  }
  return 0;
}

}  // namespace sluice::cli
