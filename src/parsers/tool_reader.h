// The contract of a tool parser: it reads a model's text as it arrives and separates content from
// calls.
#pragma once

#include <cstddef>

#include "parsers/parser_output.h"
#include "parsers/text_input.h"

namespace sluice {

// Maximum length of a name or value; longer text is not a call. Bounds the text that a reader holds
// back.
inline constexpr size_t kMaxHeldBytes = size_t{1} << 20;

// Reads one answer. Not thread-safe. Read() is called after every byte, so that the result cannot
// depend on how the text was cut into pieces.
class ToolReader {
 public:
  virtual ~ToolReader() = default;

  // Reads the text in `input`. What was written to `output` is never taken back. After the end of
  // the input, it is called once more and writes the rest.
  virtual void Read(TextInput& input, ParserOutput& output) = 0;

  // Whether the next text would be content rather than part of a call.
  virtual bool InText() const = 0;

  // Called before the last Read() if the text was cut off after the content of `input`. If the name
  // of the current call is known, begins the call; if not, drops the text from its mark on. In a
  // format without marks that text stays content, since it may be an answer. Drops unread text of a
  // call, which is the beginning of a mark.
  virtual void Cut(TextInput& input, ParserOutput& /*output*/) {
    if (!InText()) input.Clear();
  }
};

}  // namespace sluice
