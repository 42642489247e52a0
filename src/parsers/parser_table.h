// The table of parsers, named as in vLLM's --tool-call-parser and --reasoning-parser.
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

// For formats that write the whole answer as messages, in channels for reasoning, calls or content.
// In this case, one reader is both the tool parser and the reasoning parser.
struct ChannelParts {
  bool calls = false;  // false: calls are dropped
  bool thoughts = false;
  // Whether a grammar constrains the final message. If so, only this message is content, and
  // nothing ends it.
  bool constrained = false;
};
using MakeChannelReader = std::unique_ptr<ToolReader> (*)(ChannelParts parts);

struct ToolParser {
  std::string_view name;
  std::string_view example;  // an example of one call
  // Whether the marks are special tokens. If so, the text contains them even if the request sets
  // skip_special_tokens.
  bool keeps_special_tokens;
  // `types` must outlive the reader. Null if `channels` is set.
  std::unique_ptr<ToolReader> (*make)(const ToolTypes& types);
  CallGrammar grammar = {};  // if it has no trigger, forced calls are written as a JSON list
  // A token in the vocabulary of newer models of the family, which use another format.
  std::string_view newer_token = "";
  CallGrammar newer_grammar = {};
  MakeChannelReader channels = nullptr;
  bool reads_schemas = false;  // whether ToolTypes must be made with `keeps_schemas`
};

struct ReasoningParser {
  std::string_view name;
  ReasoningFormat format;
  MakeChannelReader channels = nullptr;  // not null: channels, not marks, show what is reasoning
};

std::span<const ToolParser> ToolParsers();
std::span<const ReasoningParser> ReasoningParsers();

// Returns null if no parser is named `name`.
const ToolParser* FindToolParser(std::string_view name);
const ReasoningParser* FindReasoningParser(std::string_view name);

// Returns the parser named `name`, or an error about `param` that lists all names.
Result<const ToolParser*> ToolParserNamed(std::string_view name, std::string_view param);
Result<const ReasoningParser*> ReasoningParserNamed(std::string_view name, std::string_view param);

// Fails if only one of the two parsers reads channels: such a pair cannot read the same answer.
// Either may be null.
Status CheckParsersAgree(const ToolParser* tools, const ReasoningParser* reasoning);

// Returns the parser that fits a chat template, judged by the marks in it; null if none does.
const ToolParser* SuggestToolParser(std::string_view chat_template);
const ReasoningParser* SuggestReasoningParser(std::string_view chat_template);

}  // namespace sluice
