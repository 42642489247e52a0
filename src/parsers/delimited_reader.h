// Reads calls that have markers around their name and their arguments, which are plain JSON.
#pragma once

#include <string>
#include <vector>

#include "parsers/tool_reader.h"

namespace sluice {

struct DelimitedFormat {
  std::string begin;                  // opens a block of calls
  std::string end;                    // closes a block of calls
  std::string call_begin;             // opens a call
  std::string name_begin;             // precedes the name; may be empty
  std::vector<std::string> name_end;  // any of these separates name and arguments
  std::vector<std::string> call_end;
  bool name_is_id = false;  // the name is written as "functions.NAME:INDEX", which is also the
                            // call's id
};

// Reports a call once its name is known, and passes on its arguments as they arrive.
class DelimitedReader final : public ToolReader {
 public:
  explicit DelimitedReader(const DelimitedFormat* format);

  void Read(TextInput& input, ParserOutput& output) override;
  bool InText() const override { return state_ == State::kText; }

 private:
  enum class State { kText, kBlock, kBeforeName, kName, kArguments };

  void BeginCall(ParserOutput& output);

  const DelimitedFormat* format_;
  const std::vector<std::string> text_markers_, block_markers_, name_begin_markers_;
  State state_ = State::kText;
  std::string name_;
};

}  // namespace sluice
