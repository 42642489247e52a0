// The handlers of POST /v1/completions and /v1/chat/completions, which /invocations calls too, and
// how routes of other shapes answer a chat.
#pragma once

#include "server/api/answer_writer.h"
#include "server/api/chat_request.h"
#include "server/api/route.h"

namespace sluice {

BodyHandler AnswerCompletion;
BodyHandler AnswerChat;

// Renders the conversation of `request` and generates its answer, which the writer tells. Errors:
// as those of a chat request.
ApiStatus StartChat(const RouteCall& call, const ChatRequest& request, WriterFactory* make_writer);

}  // namespace sluice
