// Calls as JSON objects, alone or in a list, after a marker or without one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parsers/json_call.h"
#include "parsers/tool_reader.h"

namespace sluice {

struct JsonFormat {
  // Markers before a call. A last byte "{" or "[" is the first one of the call, or of the list.
  std::vector<std::string> begin;
  std::vector<std::string> end;  // after it; empty: the object's end is the call's
  bool list = false;             // the marker is followed by a list of calls
  JsonCallKeys keys;
  bool at_start = false;          // calls come first in the answer, or not at all
  bool keeps_text_after = false;  // text after a call is content; else it is dropped
  bool closed_only = false;       // a call is given out once its marker closes it, or the text ends
  bool drops_broken = false;      // what a marker begins is never content, even if it is no call
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
  std::string tail_;       // of a string of arguments; ends them if nothing follows
  std::string held_;       // from the marker on, until a call begins or none can
  ParserOutput unclosed_;  // of format_->closed_only
};

}  // namespace sluice
