// One call as a JSON object: {"name": "f", "arguments": {...}}.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parsers/json_value_scan.h"
#include "parsers/parser_output.h"

namespace sluice {

struct JsonCallKeys {
  std::vector<std::string> arguments = {"arguments"};
  bool may_lack_arguments = false;  // then they are {}
  // Arguments wait for their first value: those that are cut before it are none.
  bool wait_for_value = false;
};

// Reads an object byte by byte. The call begins once both its name and the first byte of its
// arguments are known; from then on it stands, and its arguments are passed on as written.
class JsonCall {
 public:
  enum class Step {
    kInside,
    kDone,    // the object is closed, and was a call
    kBroken,  // the call has begun, but then the object breaks JSON's rules; it ends here
    kNoCall   // no call has begun, and none will
  };

  explicit JsonCall(const JsonCallKeys* keys) : keys_(keys) {}

  // `c` belongs to the object unless the call is broken there. The first byte is '{'.
  Step Feed(char c, ParserOutput& output);
  // Begins the call if its name is known and, unless a mark made it `certain` to be a call, all of
  // the text so far may be one.
  bool BeginCut(bool certain, ParserOutput& output);
  // True inside a string of the arguments of a call that has begun, unless the next byte is
  // escaped.
  bool InArgumentString() const;
  // True once the call has begun.
  bool begun() const { return begun_; }
  // What was read before the call began.
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
  std::string name_;        // as written, with quotes, until it is complete
  std::string arguments_;   // those that came before the name, or before their first value
  bool has_value_ = false;  // the arguments have
  bool after_colon_ = false;
  std::string held_;
};

}  // namespace sluice
