// How the text of an answer is taken apart: what is thought, what is said, what is called.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "parsers/answer_reader.h"
#include "parsers/parser_table.h"
#include "server/api/tool_fields.h"

namespace sluice {

struct AnswerParsing {
  const ToolParser* tools = nullptr;           // null: calls are text
  const ReasoningParser* reasoning = nullptr;  // null: thoughts are text
  ToolChoice choice = ToolChoice::kNone;
  CallForm form = CallForm::kOwn;
  std::string named = {};                  // the tool of CallForm::kArguments
  std::shared_ptr<const ToolTypes> types;  // of the request's tools; may be null
  std::optional<bool> thinking;            // as the template's arguments say
  bool include_reasoning = true;           // else thoughts are dropped
  bool first_call_only = false;            // further calls are dropped
  bool constrains_channels = false;        // the constraint has a place for thoughts

  // The answer is made of calls: where it has one, it has no text, which is not the same as none.
  bool must_call() const { return choice == ToolChoice::kRequired || choice == ToolChoice::kNamed; }
};

}  // namespace sluice
