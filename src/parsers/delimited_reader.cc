#include "parsers/delimited_reader.h"

#include <utility>

#include "base/ascii.h"
#include "parsers/tool_types.h"

namespace sluice {

DelimitedReader::DelimitedReader(const DelimitedFormat* format)
    : format_(format),
      text_markers_({format->begin}),
      block_markers_({format->end, format->call_begin}),
      name_begin_markers_({format->name_begin}) {}

void DelimitedReader::BeginCall(ParserOutput& output) {
  std::string id;
  std::string name(AsciiTrim(name_));
  if (format_->name_is_id) {
    id = name;
    name = name.substr(0, name.rfind(':'));
    name = name.substr(name.find('.') + 1);  // without a '.', npos + 1 is 0, so the name is
                                             // unchanged
  }
  output.BeginCall(std::move(name), std::move(id));
  name_.clear();
}

void DelimitedReader::Read(TextInput& input, ParserOutput& output) {
  for (;;) {
    std::string passed;
    int found = 0;
    switch (state_) {
      case State::kText:
        found = input.PassUntil(text_markers_, passed);
        if (output.calls() == 0) output.Content(passed);
        if (found == 0) state_ = State::kBlock;
        break;
      case State::kBlock:
        found = input.PassUntil(block_markers_, passed);
        if (found == 0) state_ = State::kText;
        if (found == 1) state_ = format_->name_begin.empty() ? State::kName : State::kBeforeName;
        break;
      case State::kBeforeName:
        found = input.PassUntil(name_begin_markers_, passed);
        if (found == 0) state_ = State::kName;
        break;
      case State::kName:
        found = input.PassUntil(format_->name_end, name_);
        if (name_.size() > kMaxHeldBytes) name_.resize(kMaxHeldBytes);
        if (found < 0) break;
        BeginCall(output);
        state_ = State::kArguments;
        break;
      case State::kArguments:
        found = input.PassUntil(format_->call_end, passed);
        output.Arguments(passed);
        if (found >= 0) state_ = State::kBlock;
        break;
    }
    if (found < 0) return;
  }
}

}  // namespace sluice
