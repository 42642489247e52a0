// The requests of POST /v1/messages and /v1/messages/count_tokens, in the shape of Anthropic's API.
#pragma once

#include "base/json.h"
#include "server/api/common/api_error.h"
#include "server/server_config.h"

namespace sluice {

enum class MessagesEndpoint { kMessages, kCountTokens };

// Converts a body to the equivalent chat request (chat_request.h): `system` becomes the first
// message, tool results become separate messages, and thinking blocks the reasoning of a message.
// The result takes about as much memory as `body`. Errors: 400 for a field of the wrong type or
// value, for unsupported blocks and tools, and for a tool choice without tools.
ApiResult<json::Value> ChatBodyOf(const json::Value& body, const ServerConfig& config,
                                  MessagesEndpoint endpoint);

}  // namespace sluice
