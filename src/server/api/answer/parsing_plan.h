// Determines what constrains an answer and how it is parsed, from the tools of a request and the
// server's parsers. Shared by the APIs that answer conversations.
#pragma once

#include "server/api/answer/answer_plan.h"
#include "server/api/request/conversation.h"
#include "server/api/request/tool_fields.h"

namespace sluice {

// Completes the plan of an answer to `conversation`:
// - sets `plan.generation.parsing` to the server's parsers, or to nothing if the answer is not
//   parsed;
// - sets `plan.constraint` if calls are required or must follow the tools' schemas. If calls are
//   required, this replaces the request's own constraint; otherwise the request's own constraint is
//   kept;
// - keeps special tokens that delimit calls or reasoning in the text, for the parsers.
//
// Errors: 400 for a tool's schema that cannot be enforced. REQUIRES: CheckToolSupport has passed;
// plan.options.model is set; if tools may be called, `conversation.tools` is a list that
// ReadConversation has checked.
ApiStatus PlanParsing(const ToolFields& tools, const ConversationFields& conversation,
                      bool include_reasoning, AnswerPlan& plan);

}  // namespace sluice
