// Reads MiniMax M3's calls, whose parameters are nested elements:
//  <tool_call><invoke name="f"><a>1</a><b><c>2</c></b></invoke></tool_call>,
// with ]<]minimax[>[ before each tag.
#pragma once

#include <string>

#include "parsers/tool_reader.h"
#include "parsers/tool_types.h"

namespace sluice {

// An element with children is an object, or a list if its schema requires a list. Repeated elements
// in an object become a list. All arguments of a call are passed on together once the call is
// complete, because a later element may have the same name as an earlier one. Text after a block of
// calls is dropped.
class MinimaxM3Reader final : public ToolReader {
 public:
  // `types` must outlive the reader and must have been made with `keeps_schemas`.
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

// Returns the elements in `body`, up to the first incomplete one, as a JSON object of arguments.
// `schema`: the schema of the tool's parameters; null: all values are strings.
std::string MinimaxArguments(std::string_view body, const json::Value* schema);

}  // namespace sluice
