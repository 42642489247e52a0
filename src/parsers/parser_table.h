// The parsers by their names: vLLM's --tool-call-parser and --reasoning-parser.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "parsers/call_grammar.h"
#include "parsers/reasoning_format.h"
#include "parsers/tool_reader.h"
#include "parsers/tool_types.h"

namespace sluice {

struct ToolParser {
  std::string_view name;
  std::string_view example;  // of one call
  // The marks are special tokens, which the text must keep although the request leaves them out.
  bool keeps_special_tokens;
  // `types` must outlive the reader.
  std::unique_ptr<ToolReader> (*make)(const ToolTypes& types);
  CallGrammar grammar = {};  // without a trigger: calls that have to be made are a JSON list
};

struct ReasoningParser {
  std::string_view name;
  ReasoningFormat format;
};

std::span<const ToolParser> ToolParsers();
std::span<const ReasoningParser> ReasoningParsers();

// Null if there is none of that name.
const ToolParser* FindToolParser(std::string_view name);
const ReasoningParser* FindReasoningParser(std::string_view name);

// The parser of that name, or an error about `param` that lists the names.
Result<const ToolParser*> ToolParserNamed(std::string_view name, std::string_view param);
Result<const ReasoningParser*> ReasoningParserNamed(std::string_view name, std::string_view param);

// The parsers that a chat template asks for, by the marks that it writes; null if it has none.
const ToolParser* SuggestToolParser(std::string_view chat_template);
const ReasoningParser* SuggestReasoningParser(std::string_view chat_template);

}  // namespace sluice
