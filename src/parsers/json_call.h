// Reads one call that is written as a JSON object: {"name": "f", "arguments": {...}}.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parsers/json_value_scan.h"
#include "parsers/parser_output.h"

namespace sluice {

struct JsonCallKeys {
  std::vector<std::string> arguments = {"arguments"};
  bool may_lack_arguments = false;  // whether missing arguments mean {}
  // Keeps the arguments back until their first value begins. If the text ends before that, the call
  // has no arguments.
  bool wait_for_value = false;
};

// Reads an object byte by byte. The call begins once its name and the first byte of its arguments
// are known. After that, its arguments are passed on as written, and the call is never withdrawn.
class JsonCall {
 public:
  enum class Step {
    kInside,
    kDone,    // the object is complete and is a call
    kBroken,  // the call has begun, but the object is invalid from this byte on; the call ends
              // before the byte
    kNoCall   // the object is not a call
  };

  explicit JsonCall(const JsonCallKeys* keys) : keys_(keys) {}

  // Reads `c`. The byte belongs to the object unless kBroken is returned. The first byte must be
  // '{'.
  Step Feed(char c, ParserOutput& output);
  // Called if the text ends inside the object. Begins the call if its name is known and the text so
  // far may be a call, or if `certain`: a mark has announced a call.
  bool BeginCut(bool certain, ParserOutput& output);
  // Whether the next byte is inside a string in the arguments of a call that has begun, and is not
  // escaped.
  bool InArgumentString() const;
  // Whether the call has begun.
  bool begun() const { return begun_; }
  // The text read before the call began.
  const std::string& held() const { return held_; }

 private:
  enum class State { kOpen, kKeyOrEnd, kKey, kColon, kValue, kInValue, kAfterValue };
  enum class Meaning { kOther, kName, kArguments };

  Step Read(char c, ParserOutput& output);
  Step CloseValue(ParserOutput& output);
  void BeginIfKnown(ParserOutput& output);
  bool IsArguments(std::string_view key) const;
  void PassArguments(char c, bool in_string, ParserOutput& output);

  const JsonCallKeys* keys_;
  State state_ = State::kOpen;
  Meaning meaning_ = Meaning::kOther;
  JsonValueScan scan_;
  bool escaped_ = false;
  bool begun_ = false;
  bool has_name_ = false;
  bool has_arguments_ = false;
  std::string key_;
  std::string name_;        // as written, including quotes, until it is complete
  std::string arguments_;   // arguments not passed on yet
  bool has_value_ = false;  // whether the arguments contain a value
  bool after_colon_ = false;
  std::string held_;
};

}  // namespace sluice
