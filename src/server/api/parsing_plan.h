// From the tools of a request and the parsers of the server to what is asked of an answer, and how
// it is taken apart. Shared by the APIs that answer conversations.
#pragma once

#include "server/api/answer_plan.h"
#include "server/api/conversation.h"
#include "server/api/tool_fields.h"

namespace sluice {

// Completes the plan of an answer to `conversation`:
// - `plan.generation.parsing`, with the server's parsers: none where neither calls nor thoughts are
//   looked for;
// - `plan.constraint`, where calls have to be made or to follow the tools' schemas. A call that has
//   to be made takes precedence over the request's own constraint, which else stands;
// - special tokens that mark calls or thoughts stay in the text for the parsers.
// Errors: 400 for a schema of a tool that cannot be held to.
// REQUIRES: CheckToolSupport has passed; plan.options.model is set; where tools may be called,
// `conversation.tools` is a list as ReadConversation checks it.
ApiStatus PlanParsing(const ToolFields& tools, const ConversationFields& conversation,
                      bool include_reasoning, AnswerPlan& plan);

}  // namespace sluice
