// The request of POST /v1/responses.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "server/api/openai/chat_request.h"
#include "server/api/request/response_tools.h"

namespace sluice {

struct ResponsesRequest {
  // The equivalent chat request, without messages. The caller, who has the previous response, adds
  // that response's messages, then the messages made from `instructions` and `items`.
  ChatRequest chat;
  NamespacedTools namespaced_tools;
  std::string instructions;
  json::Value::Array items;  // items of the input, each with a type and an id
  std::optional<std::string> previous_response_id;
  bool store = true;
  bool background = false;
  // An object: the members of the request that a response repeats, with defaults filled in.
  json::Value shown;
};

// Reads a parsed body. Errors: 400 for a field of the wrong type or value, and for a feature that
// this server lacks.
ApiResult<ResponsesRequest> ReadResponsesRequest(const json::Value& body,
                                                 const ServerConfig& config);

}  // namespace sluice
