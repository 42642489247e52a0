// JSON values: parses untrusted text within limits, and writes JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace sluice::json {

enum class Type { kNull, kBool, kInteger, kBigInteger, kDouble, kString, kArray, kObject };

// One JSON value. Objects keep the order in which their keys were added. Integers outside int64
// keep their digits (kBigInteger), so that a reader can name them in an error.
class Value {
 public:
  using Array = std::vector<Value>;
  using Member = std::pair<std::string, Value>;
  using Object = std::vector<Member>;

  Value() = default;
  Value(std::nullptr_t) {}
  Value(bool value) : data_(value) {}
  Value(int value) : data_(static_cast<int64_t>(value)) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(const char* value) : Value(std::string(value)) {}
  Value(std::string_view value) : Value(std::string(value)) {}
  Value(std::string value) : data_(std::move(value)) {}
  Value(Array value) : data_(std::move(value)) {}
  Value(Object value) : data_(std::move(value)) {}
  static Value BigInteger(std::string digits);

  Type type() const { return static_cast<Type>(data_.index()); }
  bool is_null() const { return type() == Type::kNull; }
  bool is_bool() const { return type() == Type::kBool; }
  bool is_integer() const { return type() == Type::kInteger; }
  bool is_big_integer() const { return type() == Type::kBigInteger; }
  bool is_double() const { return type() == Type::kDouble; }
  bool is_number() const { return is_integer() || is_double() || is_big_integer(); }
  bool is_string() const { return type() == Type::kString; }
  bool is_array() const { return type() == Type::kArray; }
  bool is_object() const { return type() == Type::kObject; }

  // REQUIRES: the value has the type that the called function returns.
  bool as_bool() const;
  int64_t as_integer() const;
  double as_double() const;              // REQUIRES: a number of any kind.
  const std::string& as_string() const;  // REQUIRES: a string or a kBigInteger, which returns its
                                         // digits.
  const Array& as_array() const;
  Array& as_array();
  const Object& as_object() const;
  Object& as_object();

  // The member named `key`; null if this is not an object or has no such member.
  const Value* Find(std::string_view key) const;
  // Sets a member of an object, replacing one of the same name. REQUIRES: object.
  void Set(std::string_view key, Value value);

  // Equality as in Python: 1 == 1.0 == true; the order of an object's members does not matter.
  friend bool operator==(const Value& a, const Value& b);

 private:
  struct Digits {
    std::string text;
  };
  // The alternatives are in the same order as the enumerators of Type.
  std::variant<std::monostate, bool, int64_t, Digits, double, std::string, Array, Object> data_;
};

const char* TypeName(Type type);  // "null", "boolean", "integer", ...

struct ParseLimits {
  size_t max_bytes = size_t{1} << 30;
  int max_depth = 128;           // limit of nested arrays and objects
  bool allow_duplicates = true;  // true: the last of two equal keys counts, as in Python's json;
                                 // false: equal keys are an error
};

// Parses one JSON text (RFC 8259, UTF-8). kInvalidArgument for invalid JSON, with line and column
// if known; kUnsupported for a number outside the range of double, an unpaired surrogate or an
// unknown escape.
Result<Value> Parse(std::string_view text, const ParseLimits& limits = {});

// Appends `text` as a JSON string with quotes. Non-ASCII characters are not escaped; invalid UTF-8
// becomes U+FFFD.
void AppendString(std::string& out, std::string_view text);
// Appends the shortest decimal that parses to the same double, spelled as in Python (1.0, 1e-05,
// 1e+16). NaN and infinity, which JSON cannot express, become null.
void AppendDouble(std::string& out, double value);
void Append(std::string& out, const Value& value);  // Writes no spaces.
std::string Write(const Value& value);

}  // namespace sluice::json
