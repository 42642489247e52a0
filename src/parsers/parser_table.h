// The table of parsers, with the names of vLLM's --tool-call-parser and --reasoning-parser.
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

// For formats that write the whole answer as messages in channels for reasoning, calls or content:
// a single reader serves both kinds of parsers.
struct ChannelParts {
  bool calls = false;  // false: calls are dropped
  bool thoughts = false;
  // A grammar constrains the final message: only that message is content, and nothing ends it.
  bool constrained = false;
};
using MakeChannelReader = std::unique_ptr<ToolReader> (*)(ChannelParts parts);

struct ToolParser {
  std::string_view name;
  std::string_view example;  // of one call
  // The marks are special tokens: the text must keep them even if the request skips special tokens.
  bool keeps_special_tokens;
  // `types` must outlive the reader. Null if `channels` is not.
  std::unique_ptr<ToolReader> (*make)(const ToolTypes& types);
  CallGrammar grammar = {};  // without a trigger: forced calls are a JSON list
  // Newer models of the family use another format; their vocabulary has this token.
  std::string_view newer_token = "";
  CallGrammar newer_grammar = {};
  MakeChannelReader channels = nullptr;
  bool reads_schemas = false;  // needs ToolTypes with `keeps_schemas`
};

struct ReasoningParser {
  std::string_view name;
  ReasoningFormat format;
  MakeChannelReader channels = nullptr;  // not null: channels, not marks, tell the reasoning
};

std::span<const ToolParser> ToolParsers();
std::span<const ReasoningParser> ReasoningParsers();

// Null if there is no parser of that name.
const ToolParser* FindToolParser(std::string_view name);
const ReasoningParser* FindReasoningParser(std::string_view name);

// Returns the parser of that name, or an error about `param` that lists the names.
Result<const ToolParser*> ToolParserNamed(std::string_view name, std::string_view param);
Result<const ReasoningParser*> ReasoningParserNamed(std::string_view name, std::string_view param);

// Fails if the two cannot read the same answer because only one of them reads channels. Either may
// be null.
Status CheckParsersAgree(const ToolParser* tools, const ReasoningParser* reasoning);

// The parser for a chat template, chosen by the marks in it; null if none is found.
const ToolParser* SuggestToolParser(std::string_view chat_template);
const ReasoningParser* SuggestReasoningParser(std::string_view chat_template);

}  // namespace sluice
