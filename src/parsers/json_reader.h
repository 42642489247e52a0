// Reads calls that are JSON objects, single or in a list, with or without a marker before them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parsers/json_call.h"
#include "parsers/tool_reader.h"

namespace sluice {

struct JsonFormat {
  // Markers before a call. If a marker ends with "{" or "[", that is also the first byte of the
  // call or list.
  std::vector<std::string> begin;
  std::vector<std::string> end;  // markers after a call; empty: the end of the object ends the call
  bool list = false;             // whether a list of calls follows the marker
  JsonCallKeys keys;
  bool at_start = false;          // whether calls are recognized only at the start of the answer
  bool keeps_text_after = false;  // whether text after a call is content; if not, it is dropped
  bool closed_only = false;   // whether a call is passed on only when its marker or the end of the
                              // text closes it
  bool drops_broken = false;  // whether text after a marker is dropped if it is not a call;
                              // otherwise it is content
};

// Reads calls in the format that `format` describes.
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
  std::string tail_;       // held-back end of an argument string; may turn out to end the call
  std::string held_;       // text from the marker on, until a call begins or can no longer begin
  ParserOutput unclosed_;  // used if format_->closed_only
};

}  // namespace sluice
