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

// For formats that write a whole answer as messages, each in a channel for thoughts, calls or
// content: one reader takes all of it apart, for both kinds of parsers.
struct ChannelParts {
  bool calls = false;  // else they are dropped
  bool thoughts = false;
  // A grammar holds the final message to a form: no other message is content, and nothing ends it.
  bool constrained = false;
};
using MakeChannelReader = std::unique_ptr<ToolReader> (*)(ChannelParts parts);

struct ToolParser {
  std::string_view name;
  std::string_view example;  // of one call
  // The marks are special tokens, which the text must keep although the request leaves them out.
  bool keeps_special_tokens;
  // `types` must outlive the reader. Null where `channels` is not.
  std::unique_ptr<ToolReader> (*make)(const ToolTypes& types);
  CallGrammar grammar = {};  // without a trigger: calls that have to be made are a JSON list
  // Newer models of the family write calls in another way; their vocabulary has this token.
  std::string_view newer_token = "";
  CallGrammar newer_grammar = {};
  MakeChannelReader channels = nullptr;
  bool reads_schemas = false;  // `types` of `make` keep them
};

struct ReasoningParser {
  std::string_view name;
  ReasoningFormat format;
  MakeChannelReader channels = nullptr;  // not null: thoughts are not told by their marks
};

std::span<const ToolParser> ToolParsers();
std::span<const ReasoningParser> ReasoningParsers();

// Null if there is none of that name.
const ToolParser* FindToolParser(std::string_view name);
const ReasoningParser* FindReasoningParser(std::string_view name);

// The parser of that name, or an error about `param` that lists the names.
Result<const ToolParser*> ToolParserNamed(std::string_view name, std::string_view param);
Result<const ReasoningParser*> ReasoningParserNamed(std::string_view name, std::string_view param);

// An error where they cannot read one answer: one of them reads channels, the other does not.
// Either may be null.
Status CheckParsersAgree(const ToolParser* tools, const ReasoningParser* reasoning);

// The parsers that a chat template asks for, by the marks that it writes; null if it has none.
const ToolParser* SuggestToolParser(std::string_view chat_template);
const ReasoningParser* SuggestReasoningParser(std::string_view chat_template);

}  // namespace sluice
