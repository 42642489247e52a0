#include "client/openai_client.h"

#include <utility>

#include <fmt/format.h>

namespace sluice {
namespace {

Url WithoutApiPath(Url url) {
  if (url.path.ends_with("/v1")) url.path.resize(url.path.size() - 3);
  return url;
}

std::map<std::string, std::string> HeadersFor(const std::string& api_key) {
  if (api_key.empty()) return {};
  return {{"Authorization", "Bearer " + api_key}};
}

const json::Value* FindPath(const json::Value& value,
                            std::initializer_list<std::string_view> path) {
  const json::Value* place = &value;
  for (std::string_view key : path) {
    if (!place->is_object()) return nullptr;
    place = place->Find(key);
    if (place == nullptr) return nullptr;
  }
  return place;
}

// Makes an error from the server's error message.
Error ServerError(int status, const json::Value* body, std::string_view text) {
  std::string message(text.substr(0, 500));
  if (body != nullptr) {
    if (const auto* words = FindPath(*body, {"error", "message"});
        words != nullptr && words->is_string()) {
      message = words->as_string();
    }
  }
  const ErrorCode code = status == 404   ? ErrorCode::kNotFound
                         : status >= 500 ? ErrorCode::kUnavailable
                                         : ErrorCode::kInvalidArgument;
  return Error{code, fmt::format("the server answered with {}: {}", status, message), ""};
}

Result<json::Value> ParseAnswer(const ClientResponse& response) {
  auto body = json::Parse(response.body);
  if (response.status != 200) {
    return tl::unexpected<Error>(
        ServerError(response.status, body ? &*body : nullptr, response.body));
  }
  if (!body)
    return tl::unexpected<Error>(std::move(body).error().In("the server's answer is not JSON"));
  return body;
}

std::string_view TextOf(const json::Value& choice) {
  const json::Value* text = choice.Find("text");
  if (text == nullptr) text = FindPath(choice, {"delta", "content"});
  return text != nullptr && text->is_string() ? std::string_view(text->as_string())
                                              : std::string_view();
}

// Adds an event's pieces of tool calls to `calls`.
void AddCalls(const json::Value& choice, std::vector<ToolCall>& calls) {
  const json::Value* pieces = FindPath(choice, {"delta", "tool_calls"});
  if (pieces == nullptr || !pieces->is_array()) return;
  for (const json::Value& piece : pieces->as_array()) {
    const auto text = [&](std::initializer_list<std::string_view> path) {
      const json::Value* found = FindPath(piece, path);
      return found != nullptr && found->is_string() ? found->as_string() : "";
    };
    const std::string name = text({"function", "name"});
    if (!name.empty()) calls.push_back({text({"id"}), name, ""});
    if (!calls.empty()) calls.back().arguments += text({"function", "arguments"});
  }
}

std::optional<int64_t> IntegerAt(const json::Value& value,
                                 std::initializer_list<std::string_view> path) {
  const json::Value* found = FindPath(value, path);
  if (found == nullptr || !found->is_integer()) return std::nullopt;
  return found->as_integer();
}

std::optional<AnswerUsage> UsageOf(const json::Value& event) {
  const json::Value* usage = event.Find("usage");
  if (usage == nullptr || !usage->is_object()) return std::nullopt;
  return AnswerUsage{IntegerAt(*usage, {"prompt_tokens"}).value_or(0),
                     IntegerAt(*usage, {"completion_tokens"}).value_or(0),
                     IntegerAt(*usage, {"prompt_tokens_details", "cached_tokens"})};
}

}  // namespace

OpenAiClient::OpenAiClient(Url url, const std::string& api_key,
                           std::shared_ptr<const ClientTls> tls)
    : http_(WithoutApiPath(std::move(url)), HeadersFor(api_key), std::move(tls)) {}

Result<std::vector<std::string>> OpenAiClient::ListModels() const {
  ASSIGN_OR_RETURN(const ClientResponse response, http_.Get("/v1/models"));
  ASSIGN_OR_RETURN(const json::Value body, ParseAnswer(response));
  std::vector<std::string> ids;
  if (const json::Value* data = body.Find("data"); data != nullptr && data->is_array()) {
    for (const json::Value& model : data->as_array()) {
      if (const json::Value* id = model.Find("id"); id != nullptr && id->is_string())
        ids.push_back(id->as_string());
    }
  }
  if (ids.empty()) return Fail(ErrorCode::kUnavailable, "the server lists no model at /v1/models");
  return ids;
}

Result<AnswerEnd> OpenAiClient::Chat(const AnswerSettings& settings, const json::Value& messages,
                                     const OnText& on_text, int cancel_fd) const {
  json::Value body{json::Value::Object{}};
  body.Set("messages", messages);
  if (!settings.tools.is_null()) body.Set("tools", settings.tools);
  return Stream("/v1/chat/completions", settings, std::move(body), on_text, cancel_fd);
}

Result<AnswerEnd> OpenAiClient::Complete(const AnswerSettings& settings, const std::string& prompt,
                                         const OnText& on_text, int cancel_fd) const {
  json::Value body{json::Value::Object{}};
  body.Set("prompt", json::Value(prompt));
  return Stream("/v1/completions", settings, std::move(body), on_text, cancel_fd);
}

Result<AnswerEnd> OpenAiClient::Stream(std::string_view path, const AnswerSettings& settings,
                                       json::Value body, const OnText& on_text,
                                       int cancel_fd) const {
  body.Set("model", json::Value(settings.model));
  body.Set("stream", json::Value(true));
  if (settings.usage) {
    body.Set("stream_options", json::Value(json::Value::Object{{"include_usage", true}}));
  }
  if (settings.max_tokens) body.Set("max_tokens", json::Value(*settings.max_tokens));
  if (settings.temperature) body.Set("temperature", json::Value(*settings.temperature));
  if (settings.top_p) body.Set("top_p", json::Value(*settings.top_p));
  if (settings.seed) body.Set("seed", json::Value(*settings.seed));

  AnswerEnd end;
  std::optional<Error> failed;
  auto response = http_.PostStream(
      path, json::Write(body),
      [&](std::string_view data) {
        if (data == "[DONE]") return false;
        const auto event = json::Parse(data);
        if (!event) {
          failed = Error{ErrorCode::kUnavailable,
                         "an event of the server is not JSON: " + event.error().message, ""};
          return false;
        }
        if (event->Find("error") != nullptr) {
          failed = ServerError(200, &*event, data);
          return false;
        }
        if (auto usage = UsageOf(*event)) end.usage = usage;
        const json::Value* choices = event->Find("choices");
        if (choices == nullptr || !choices->is_array() || choices->as_array().empty()) return true;
        const json::Value& choice = choices->as_array().front();
        if (const std::string_view text = TextOf(choice); !text.empty()) {
          end.text += text;
          on_text(text);
        }
        AddCalls(choice, end.calls);
        if (const json::Value* reason = choice.Find("finish_reason");
            reason != nullptr && reason->is_string()) {
          end.finish_reason = reason->as_string();
        }
        return true;
      },
      cancel_fd);
  if (!response && response.error().code == ErrorCode::kCancelled) {
    end.cancelled = true;
    return end;
  }
  if (!response) return tl::unexpected<Error>(std::move(response).error());
  if (failed) return tl::unexpected<Error>(*std::move(failed));
  if (response->status != 200) {
    RETURN_IF_ERROR(ParseAnswer(*response));
  }
  return end;
}

}  // namespace sluice
