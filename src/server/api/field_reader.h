// Typed fields out of a request body, with errors in the form of pydantic, whose checks vLLM's
// clients know.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/api/api_error.h"

namespace sluice {

// One thing wrong with a body.
struct FieldError {
  std::string type;      // "int_parsing"
  std::string location;  // "body.prompt.0"
  std::string message;   // "Input should be a valid integer"
  std::string input;     // str() of what was found
  std::string context;   // repr of a dict, or ""
};

// 400 "Bad Request" with all of them in its message and the place of the first as `param`.
// REQUIRES: not empty.
tl::unexpected<ApiError> ValidationFailed(const std::vector<FieldError>& errors);
// A body that is no object. `times`: for how many alternatives it is reported.
tl::unexpected<ApiError> NotAnObject(const json::Value& body, int times = 1);

struct IntRange {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
  bool bounded = false;  // integers outside int64 are errors instead of the nearest int64
};

// Reads the members of one object. A field that is absent gives its default; null is like absent
// for the Optional functions and an error for the others. Numbers may stand in strings, and
// booleans be "yes" or 1, as pydantic allows. After a wrong value the default is returned and the
// error noted in `errors`, so that all fields are reported at once.
class FieldReader {
 public:
  // REQUIRES: `object` is an object; it and `errors` outlive the reader.
  FieldReader(const json::Value& object, std::string location, std::vector<FieldError>* errors)
      : object_(object), location_(std::move(location)), errors_(errors) {}

  // The value as it stands, or null if it is absent or null.
  const json::Value* Raw(std::string_view name) const;
  const json::Value& object() const { return object_; }

  std::optional<int64_t> OptionalInt(std::string_view name, IntRange range = {});
  int64_t Int(std::string_view name, int64_t fallback, IntRange range = {});
  std::optional<double> OptionalFloat(std::string_view name);
  double Float(std::string_view name, double fallback);
  std::optional<bool> OptionalBool(std::string_view name);
  bool Bool(std::string_view name, bool fallback);
  std::optional<std::string> OptionalString(std::string_view name);
  std::string String(std::string_view name, std::string fallback);
  std::optional<std::vector<int64_t>> OptionalInts(std::string_view name, IntRange range = {});
  std::vector<std::string> Strings(std::string_view name);  // [] by default; null is an error
  std::optional<std::vector<std::pair<std::string, double>>> OptionalFloatMap(
      std::string_view name);
  // The value if it is an object (a list) or the error noted. `model`: reported as an object to
  // take fields from.
  const json::Value* OptionalObject(std::string_view name, bool model = false);
  const json::Value* OptionalList(std::string_view name);
  // One of `choices`; `expected` spells them for the message: "'left' or 'right'".
  std::optional<std::string> OptionalChoice(std::string_view name,
                                            const std::vector<std::string>& choices,
                                            std::string_view expected);

  void Add(std::string type, std::string_view place, std::string message, const json::Value& input,
           std::string context = {});
  void Append(FieldError error);
  std::vector<FieldError>* errors() { return errors_; }
  // A required field that is not there.
  void AddMissing(std::string_view name);

  // Single values; `place` is the location below this reader's. None with an error noted.
  std::optional<int64_t> ParseInt(const json::Value& value, std::string_view place, IntRange range);
  std::optional<double> ParseFloat(const json::Value& value, std::string_view place);
  std::optional<bool> ParseBool(const json::Value& value, std::string_view place);

 private:
  const json::Value* Find(std::string_view name) const { return object_.Find(name); }

  const json::Value& object_;
  const std::string location_;
  std::vector<FieldError>* const errors_;
};

// Whether Python's `if value` holds.
bool IsTruthy(const json::Value* value);

}  // namespace sluice
