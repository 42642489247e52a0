// The settings by which an answer's text is parsed into reasoning, content and tool calls.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "parsers/answer_reader.h"
#include "parsers/parser_table.h"
#include "server/api/request/tool_fields.h"

namespace sluice {

struct AnswerParsing {
  const ToolParser* tools = nullptr;           // null: calls are treated as content
  const ReasoningParser* reasoning = nullptr;  // null: reasoning is treated as content
  ToolChoice choice = ToolChoice::kNone;
  CallForm form = CallForm::kOwn;
  std::string named = {};                  // for CallForm::kArguments: name of the called tool
  std::shared_ptr<const ToolTypes> types;  // parameter types of the request's tools; may be null
  std::optional<bool> thinking;      // as set by the template's arguments; see ThinkingSwitch()
  bool include_reasoning = true;     // false: reasoning is dropped
  bool first_call_only = false;      // whether calls after the first one are dropped
  bool constrains_channels = false;  // whether the constraint also covers reasoning
  // Whether a constraint determines the form of the answer: with `holds_thoughts` the form of the
  // whole answer, so that there is no reasoning, otherwise the form of everything except reasoning.
  // False for free text in which only calls are constrained.
  bool held = false;
  bool holds_thoughts = false;

  // Whether the answer must consist of calls. If the answer contains a call, its content is ""
  // rather than null.
  bool must_call() const { return choice == ToolChoice::kRequired || choice == ToolChoice::kNamed; }

  // Makes the reader of one answer. `turn`: the end of the prompt, from the start of the answer's
  // turn on.
  std::unique_ptr<AnswerReader> MakeReader(std::string_view turn, const StopRules& rules) const {
    return std::make_unique<AnswerReader>(
        AnswerReaderOptions{.tools = tools,
                            .reasoning = held && holds_thoughts ? nullptr : reasoning,
                            .types = types,
                            .form = form,
                            .named = named,
                            .constrained = held,
                            .stops = rules,
                            .prompt = turn,
                            .thinking = thinking});
  }
};

}  // namespace sluice
