// The handlers of POST /v1/completions and /v1/chat/completions, which /invocations calls too.
#pragma once

#include "server/api/route.h"

namespace sluice {

BodyHandler AnswerCompletion;
BodyHandler AnswerChat;

}  // namespace sluice
