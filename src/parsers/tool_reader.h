// The contract of a tool parser: it reads a model's text as it comes, and tells content from calls.
#pragma once

#include <cstddef>

#include "parsers/parser_output.h"
#include "parsers/text_input.h"

namespace sluice {

// A name or value that is longer is no call: bounds what a reader holds back.
inline constexpr size_t kMaxHeldBytes = size_t{1} << 20;

// One answer's reader. Not thread-safe. Read() is called after every byte that came, so that an
// answer cannot depend on how its text was cut into pieces.
class ToolReader {
 public:
  virtual ~ToolReader() = default;

  // Reads what `input` has. Nothing that was written to `output` is taken back later. After the end
  // of the input it is called once more, and gives the rest.
  virtual void Read(TextInput& input, ParserOutput& output) = 0;

  // True where the next text would be content, not a part of a call.
  virtual bool InText() const = 0;

  // The text ends after what `input` holds; called before the last Read(). Begins the call that is
  // being read if its name is known, and drops what its mark began if it is not. In a format
  // without marks that text stays content, since it may be an answer. Drops unread text of a call:
  // the beginning of a mark.
  virtual void Cut(TextInput& input, ParserOutput& /*output*/) {
    if (!InText()) input.Clear();
  }
};

}  // namespace sluice
