// Reads a JSON text in place, token by token, without building a tree: for large foreign headers
// whose memory must not be multiplied by the parser.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

// A position in a JSON text. All errors are kInvalidData and name the byte.
// Ownership: views the text. REQUIRES: the text is valid UTF-8.
class JsonCursor {
 public:
  explicit JsonCursor(std::string_view text) : text_(text) {}

  size_t position() const { return position_; }
  // Skips white space; true at the end of the text.
  bool AtEnd();
  // Skips white space; the next byte, or 0 at the end.
  char Peek();
  // Takes `c` if it comes next.
  bool Consume(char c);
  Status Expect(char c, std::string_view where);
  // A string, unescaped, of at most `max_bytes`.
  Result<std::string> String(size_t max_bytes);
  // A non-negative integer without fraction or exponent that fits an unsigned 64-bit number.
  Result<uint64_t> Unsigned(std::string_view what);
  // Passes over any value nested at most `max_depth` deep.
  Status Skip(int max_depth);

  // Walks an object: `member(key)` reads the value of each. The opening brace comes next.
  template <typename Member>
  Status Object(std::string_view where, size_t max_key_bytes, Member&& member) {
    RETURN_IF_ERROR(Expect('{', where));
    if (Consume('}')) return {};
    do {
      ASSIGN_OR_RETURN(std::string key, String(max_key_bytes));
      RETURN_IF_ERROR(Expect(':', where));
      RETURN_IF_ERROR(member(std::move(key)));
    } while (Consume(','));
    return Expect('}', where);
  }

  // Walks an array: `element()` reads each. The opening bracket comes next.
  template <typename Element>
  Status Array(std::string_view where, Element&& element) {
    RETURN_IF_ERROR(Expect('[', where));
    if (Consume(']')) return {};
    do {
      RETURN_IF_ERROR(element());
    } while (Consume(','));
    return Expect(']', where);
  }

  tl::unexpected<Error> Bad(std::string_view what) const;

 private:
  Result<uint32_t> Hex4();
  Status Escape(std::string& out);
  Status SkipNumber();

  std::string_view text_;
  size_t position_ = 0;
};

}  // namespace sluice
