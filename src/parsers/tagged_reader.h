// Reads calls that have each parameter between tags, without types:
//  <tool_call><function=f><parameter=a>1</parameter></function></tool_call>.
#pragma once

#include <string>
#include <vector>

#include "parsers/tool_reader.h"
#include "parsers/tool_types.h"

namespace sluice {

struct TaggedFormat {
  std::vector<std::string> begin;  // opens a block of calls
  std::string end;                 // closes a block of calls
  // Opens a call. Empty: the block itself is a call, and its name follows directly.
  std::string call_open;
  std::vector<std::string> name_end;  // marks after the call's name
  std::string call_close;             // closes a call; empty: `end` closes it
  std::string parameter_open;
  std::string parameter_name_end;
  std::string value_open;  // between name and value; empty: nothing
  std::string value_close;
  // Marks in a parameter's tag, after its name, that show whether the value is a string or JSON.
  std::string is_string_mark;
  std::string is_json_mark;
  bool trims_newline = false;             // whether one line break is removed at each end of a
                                          // value
  bool known_tools_only = false;          // whether calls of unknown tools are dropped
  bool escapes_names = false;             // whether names contain &quot; and &amp; for '"' and '&'
  std::vector<std::string> dropped = {};  // marks between calls, which are dropped
  bool keeps_text_after = false;
  bool scalars_only = false;  // whether null, objects and arrays are passed on as strings
};

// Reports a call once its name is known. Passes on values of type string as they arrive, others
// once they are complete.
class TaggedReader final : public ToolReader {
 public:
  // `types` must outlive the reader.
  TaggedReader(const TaggedFormat* format, const ToolTypes* types);

  void Read(TextInput& input, ParserOutput& output) override;
  bool InText() const override { return state_ == State::kText; }

 private:
  enum class State { kText, kBlock, kName, kCall, kParameter, kValueOpen, kValue };

  bool Step(TextInput& input, ParserOutput& output);
  bool ReadText(TextInput& input, ParserOutput& output);
  bool ReadName(TextInput& input, ParserOutput& output);
  bool ReadCall(TextInput& input, ParserOutput& output);
  bool ReadParameter(TextInput& input, ParserOutput& output);
  bool ReadValue(TextInput& input, ParserOutput& output);
  void BeginCall(ParserOutput& output);
  void EndCall(ParserOutput& output);
  void BeginValue(ParserOutput& output);
  void Arguments(std::string_view text, ParserOutput& output);
  void PassValue(ParserOutput& output, bool last);

  const TaggedFormat* format_;
  const ToolTypes* types_;
  const std::vector<std::string> text_markers_, block_markers_, call_markers_, parameter_markers_,
      value_open_markers_, value_markers_;
  State state_ = State::kText;
  std::string name_;  // the call's name, kept to look up its types
  std::string parameter_;
  std::string value_;
  ParameterTypes value_types_;
  bool in_call_ = false;
  bool dropped_call_ = false;
  bool has_parameter_ = false;
  bool streams_value_ = false;
  bool at_value_start_ = false;
};

}  // namespace sluice
