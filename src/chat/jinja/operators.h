// Python's operators and protocols on values.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "chat/jinja/value.h"

namespace sluice::jinja {

enum class BinaryOperator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
Value Apply(BinaryOperator op, const Value& left, const Value& right);
Value Negate(const Value& value);
Value Posit(const Value& value);

bool Truth(const Value& value);
bool Equal(const Value& a, const Value& b);
// The comparison that Compare makes: <, <=, > or >=. Fails (TypeError) for values without an order.
enum class Order { kLess, kLessEqual, kGreater, kGreaterEqual };
bool Compare(Order order, const Value& a, const Value& b);
inline bool LessThan(const Value& a, const Value& b) {
  return Compare(Order::kLess, a, b);
}
// Implements `needle in haystack`.
bool Contains(const Value& haystack, const Value& needle);
// Approximates `a is b`: compares scalars and strings by value, and other values by identity.
bool Same(const Value& a, const Value& b);
// Implements hash(value). Fails (TypeError) for lists, dictionaries and values that contain them.
size_t Hash(const Value& value);
size_t HashText(std::string_view text);

// Implements len(value).
size_t Length(const Value& value);
// Implements iter(value); fails (TypeError) if the value is not iterable.
IteratorPointer Iterate(const Value& value);
// Like Iterate, but returns null instead of failing.
IteratorPointer TryIterate(const Value& value);
// Returns list(value) as a vector.
std::vector<Value> ToVector(const Value& value);
// Returns the remaining items of an iterator.
std::vector<Value> Drain(Iterator& iterator);

// Implement value.name and value[key] as in the sandbox: undefined if missing, or if access is
// unsafe.
Value GetAttribute(const Value& object, std::string_view name);
// Finds only attributes, not items named `name`.
std::optional<Value> FindAttribute(const Value& object, std::string_view name);
Value GetItem(const Value& object, const Value& key);
// Implements value[start:stop:step]; missing bounds are None.
Value GetSlice(const Value& object, const Value& start, const Value& stop, const Value& step);

// Converts a number for arithmetic, as Python's int() or float() would. Booleans count as numbers.
double ToDouble(const Value& number);
BigInteger ToBigInteger(const Value& integer);
// Converts the value to an index or a count, saturated to int64. Fails (TypeError) with the message
// `what` if it is not an integer.
int64_t ToIndex(const Value& value, const char* what);
// Implements Python's round(value, digits) for a float.
double RoundDigits(double value, int64_t digits);
// Escapes HTML as Markup does.
std::string EscapeHtml(std::string_view text);
// Whether `text` begins or ends with another text.
bool StartsWith(std::string_view text, std::string_view prefix);
bool EndsWith(std::string_view text, std::string_view suffix);

}  // namespace sluice::jinja
