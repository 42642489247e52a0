// The interface of tool parsers. A tool parser reads the text of an answer as it arrives and
// separates content from calls.
#pragma once

#include <cstddef>

#include "parsers/parser_output.h"
#include "parsers/text_input.h"

namespace sluice {

// Maximum length of a name or value. Longer text is not a call. This limits the text that a reader
// holds back.
inline constexpr size_t kMaxHeldBytes = size_t{1} << 20;

// Reads one answer. Read() is called after every byte, so that the result cannot depend on how the
// text was cut into pieces. Thread safety: one thread.
class ToolReader {
 public:
  virtual ~ToolReader() = default;

  // Reads the text in `input` and writes events to `output`. Written events are never withdrawn.
  // The last call, after the end of the input, writes all remaining events.
  virtual void Read(TextInput& input, ParserOutput& output) = 0;

  // Whether the next text would be content rather than part of a call.
  virtual bool InText() const = 0;

  // Called before the last Read() if the answer was cut off. Begins the current call if its name is
  // known; otherwise drops the text from the call's mark on. In a format without marks, keeps the
  // text as content, because it may be an answer. Drops unread text of a call, which can only be
  // the beginning of a mark.
  virtual void Cut(TextInput& input, ParserOutput& /*output*/) {
    if (!InText()) input.Clear();
  }
};

}  // namespace sluice
