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

  // The text has ended, which nobody has been told yet. Gives out the call that is being read as
  // far as it is known, and drops its text, where it is certain that it was to be one.
  virtual void TellCutCall(ParserOutput& /*output*/) {}

  // True if the arguments of the last call are no JSON as they stand: they are cut or broken. Not
  // for formats whose arguments are made into JSON, which stand as far as they were read.
  virtual bool LastCallIsBroken() const { return false; }
};

}  // namespace sluice
