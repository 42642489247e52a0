// Reads Gemma 4's calls: <|tool_call>call:NAME{key:<|"|>text<|"|>,other:3}<tool_call|>.
#pragma once

#include <string>

#include "parsers/tool_reader.h"
#include "parsers/tool_types.h"

namespace sluice {

// Passes on arguments one by one. The type of a value without quotes comes from the tool's schema;
// inside objects and lists, values without quotes are strings, as in vLLM.
class GemmaReader final : public ToolReader {
 public:
  // `types` must outlive the reader.
  explicit GemmaReader(const ToolTypes* types) : types_(types) {}

  void Read(TextInput& input, ParserOutput& output) override;
  bool InText() const override { return state_ == State::kText; }

 private:
  enum class State { kText, kName, kArgument, kClose };

  bool ReadArgument(TextInput& input, ParserOutput& output);
  void EndArgument(ParserOutput& output);

  const ToolTypes* types_;
  State state_ = State::kText;
  std::string name_;
  std::string argument_;
  bool in_string_ = false;
  bool has_argument_ = false;
  int depth_ = 0;
};

}  // namespace sluice
