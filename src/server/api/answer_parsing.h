// How the text of an answer is parsed into reasoning, content and tool calls.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "parsers/answer_reader.h"
#include "parsers/parser_table.h"
#include "server/api/tool_fields.h"

namespace sluice {

struct AnswerParsing {
  const ToolParser* tools = nullptr;           // null: calls are content
  const ReasoningParser* reasoning = nullptr;  // null: reasoning is content
  ToolChoice choice = ToolChoice::kNone;
  CallForm form = CallForm::kOwn;
  std::string named = {};                  // the tool of CallForm::kArguments
  std::shared_ptr<const ToolTypes> types;  // of the request's tools; may be null
  std::optional<bool> thinking;            // as the template's arguments say
  bool include_reasoning = true;           // else reasoning is dropped
  bool first_call_only = false;            // further calls are dropped
  bool constrains_channels = false;        // the constraint admits reasoning

  // The answer consists of calls. If it has one, its content is "" rather than null.
  bool must_call() const { return choice == ToolChoice::kRequired || choice == ToolChoice::kNamed; }
};

}  // namespace sluice
