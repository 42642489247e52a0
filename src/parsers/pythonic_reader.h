// Reads calls in Python syntax: [f(a=1, b='x'), g()].
#pragma once

#include <string>
#include <vector>

#include "parsers/tool_reader.h"

namespace sluice {

struct PythonicFormat {
  std::vector<std::string> begin;   // markers before the calls; empty: calls can only be at the
                                    // start of the answer
  std::vector<std::string> end;     // markers after the calls
  std::vector<std::string> prefix;  // texts that may precede the bracket
  bool brackets = true;             // true: calls are in a list; false: each call is on a line
  bool keeps_text_after = false;    // whether text after the calls is content; if not, it is
                                    // dropped
};

// Reports a call once its name and "(" are known, and passes on its arguments one by one.
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
  bool named_ = false;  // whether a blank follows name_
  bool has_argument_ = false;
  char quote_ = '\0';
  bool escaped_ = false;
  int depth_ = 0;
  int block_calls_ = 0;
};

}  // namespace sluice
