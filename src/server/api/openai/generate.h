// The handlers of POST /v1/completions and /v1/chat/completions, which /invocations also calls, and
// the generation that all chat routes share.
#pragma once

#include "server/api/answer/answer_writer.h"
#include "server/api/context/route.h"
#include "server/api/openai/chat_request.h"

namespace sluice {

BodyHandler AnswerCompletion;
BodyHandler AnswerChat;

// Renders the conversation of `request` and generates its answer, which the writer made by
// `make_writer` sends. Errors: the same as for a chat request.
ApiStatus StartChat(const RouteCall& call, const ChatRequest& request, WriterFactory* make_writer);

}  // namespace sluice
