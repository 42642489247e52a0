// Finds the end of a JSON value, byte by byte, without building it.
#pragma once

namespace sluice {

// Tracks only strings and nesting. A value with other errors is passed on unchanged.
class JsonValueScan {
 public:
  enum class Step { kInside, kLast, kOver };

  // Reads the next byte of the value. kInside: `c` belongs to the value. kLast: `c` is its last
  // byte. kOver: the value, a number or a word, ended before `c`. REQUIRES: the first byte is not
  // white space, and the value has not ended.
  Step Feed(char c);

  bool InString() const { return in_string_; }
  bool AfterBackslash() const { return escaped_; }

 private:
  enum class Kind { kUnknown, kNested, kString, kWord };
  Kind kind_ = Kind::kUnknown;
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace sluice
