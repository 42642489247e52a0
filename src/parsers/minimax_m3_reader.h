// MiniMax M3's calls, whose parameters are elements that nest:
// <tool_call><invoke name="f"><a>1</a><b><c>2</c></b></invoke></tool_call>, and before each tag
// stands ]<]minimax[>[.
#pragma once

#include <string>

#include "parsers/tool_reader.h"
#include "parsers/tool_types.h"

namespace sluice {

// An element that holds others is an object, or a list where its schema says so; elements of one
// name in an object are a list. A call's arguments come at once, when it is complete, because what
// follows may change what stands for a name. Text after a block of calls is dropped.
class MinimaxM3Reader final : public ToolReader {
 public:
  // `types` must outlive the reader, and keep schemas.
  explicit MinimaxM3Reader(const ToolTypes* types) : types_(types) {}

  void Read(TextInput& input, ParserOutput& output) override;
  bool InText() const override { return state_ == State::kText; }

 private:
  enum class State { kText, kBlock, kName, kBody };

  bool ReadName(TextInput& input, ParserOutput& output);
  bool ReadBody(TextInput& input, ParserOutput& output);

  const ToolTypes* types_;
  State state_ = State::kText;
  std::string name_;
  std::string body_;
};

// The arguments, as JSON, that the elements of `body` stand for: up to the first that is not
// complete. `schema` of the tool's parameters; null: all values are strings.
std::string MinimaxArguments(std::string_view body, const json::Value* schema);

}  // namespace sluice
