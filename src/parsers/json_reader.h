// Calls as JSON objects, alone or in a list, with or without a marker before them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parsers/json_call.h"
#include "parsers/tool_reader.h"

namespace sluice {

struct JsonFormat {
  // Markers before a call. A final "{" or "[" is also the first byte of the call or the list.
  std::vector<std::string> begin;
  std::vector<std::string> end;  // markers after a call; empty: the object's end ends it
  bool list = false;             // the marker is followed by a list of calls
  JsonCallKeys keys;
  bool at_start = false;          // calls are at the start of the answer, or nowhere
  bool keeps_text_after = false;  // text after a call is content; else it is dropped
  bool closed_only = false;   // passes a call on once its marker or the end of the text closes it
  bool drops_broken = false;  // text after a marker is never content, even if it is not a call
};

// Reads calls as `format` writes them.
class JsonReader final : public ToolReader {
 public:
  explicit JsonReader(const JsonFormat* format);

  void Read(TextInput& input, ParserOutput& output) override;
  bool InText() const override { return state_ == State::kText; }
  void Cut(TextInput& input, ParserOutput& output) override;

 private:
  enum class State { kText, kOpen, kCall, kBetween, kClose, kPlain, kDropped };

  bool ReadText(TextInput& input, ParserOutput& output);
  void Open(char c, ParserOutput& output);
  void FeedCall(char c, TextInput& input, ParserOutput& output);
  void ReadCall(char c, TextInput& input, ParserOutput& output);
  bool MayEndCall(std::string_view text, bool complete) const;
  bool ReadClose(TextInput& input, ParserOutput& output);
  void NoCall(ParserOutput& output);
  void Emit(std::string_view text, ParserOutput& output);
  ParserOutput& CallOutput(ParserOutput& output);
  void ReleaseClosed(ParserOutput& output);

  const JsonFormat* format_;
  State state_;
  std::optional<JsonCall> call_;
  std::string tail_;       // end of a string of arguments that may be the end of the call
  std::string held_;       // text from the marker on, until a call begins or cannot begin
  ParserOutput unclosed_;  // used with format_->closed_only
};

}  // namespace sluice
