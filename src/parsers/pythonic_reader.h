// Calls in Python syntax: [f(a=1, b='x'), g()].
#pragma once

#include <string>
#include <vector>

#include "parsers/tool_reader.h"

namespace sluice {

struct PythonicFormat {
  std::vector<std::string> begin;   // before the calls; empty: calls are at the start or nowhere
  std::vector<std::string> end;     // after the calls
  std::vector<std::string> prefix;  // may come before the bracket
  bool brackets = true;             // calls are in a list; false: one per line
  bool keeps_text_after = false;    // text after the calls is content; else it is dropped
};

// A call begins once its name and "(" are known; its arguments are passed on one by one.
class PythonicReader final : public ToolReader {
 public:
  explicit PythonicReader(const PythonicFormat* format);

  void Read(TextInput& input, ParserOutput& output) override;
  bool InText() const override { return state_ == State::kText || state_ == State::kPlain; }
  void Cut(TextInput& input, ParserOutput& output) override;

 private:
  enum class State { kText, kOpen, kName, kArgument, kClose, kPlain };

  bool ReadMarked(TextInput& input, ParserOutput& output);
  void Open(char c, ParserOutput& output);
  void Name(char c, TextInput& input, ParserOutput& output);
  void Argument(char c, ParserOutput& output);
  void EndArgument(ParserOutput& output);
  void NoCall(ParserOutput& output);
  void Emit(std::string_view text, ParserOutput& output);

  const PythonicFormat* format_;
  State state_;
  std::string held_;  // text from the marker on, until the first call begins
  std::string name_;
  std::string argument_;
  bool named_ = false;  // a blank follows name_
  bool has_argument_ = false;
  char quote_ = '\0';
  bool escaped_ = false;
  int depth_ = 0;
  int block_calls_ = 0;
};

}  // namespace sluice
