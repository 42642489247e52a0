// Python's operators and protocols for values.
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
// Whether a < b, a <= b, ... Fails (TypeError) for values without an order.
enum class Order { kLess, kLessEqual, kGreater, kGreaterEqual };
bool Compare(Order order, const Value& a, const Value& b);
inline bool LessThan(const Value& a, const Value& b) {
  return Compare(Order::kLess, a, b);
}
// `needle in haystack`.
bool Contains(const Value& haystack, const Value& needle);
// `a is b`, approximately: scalars and strings by value, other values by identity.
bool Same(const Value& a, const Value& b);
// Fails (TypeError) for lists, dictionaries and values that contain them.
size_t Hash(const Value& value);
size_t HashText(std::string_view text);

// len(value).
size_t Length(const Value& value);
// iter(value); fails (TypeError) if it is not iterable.
IteratorPointer Iterate(const Value& value);
// Like Iterate, but returns null instead of failing.
IteratorPointer TryIterate(const Value& value);
// list(value) as a vector.
std::vector<Value> ToVector(const Value& value);
// The remaining items of an iterator.
std::vector<Value> Drain(Iterator& iterator);

// value.name and value[key] as in the sandbox: undefined if there is none, or if access is unsafe.
Value GetAttribute(const Value& object, std::string_view name);
// Only the attribute, without looking for an item of that name.
std::optional<Value> FindAttribute(const Value& object, std::string_view name);
Value GetItem(const Value& object, const Value& key);
// value[start:stop:step]; missing bounds are None.
Value GetSlice(const Value& object, const Value& start, const Value& stop, const Value& step);

// A number as Python's int() or float() would convert it for arithmetic; bools are numbers.
double ToDouble(const Value& number);
BigInteger ToBigInteger(const Value& integer);
// The value as an index or a count, saturated to int64; fails (TypeError) with `what` unless it is
// an integer.
int64_t ToIndex(const Value& value, const char* what);
// Python's round(value, digits) of a float.
double RoundDigits(double value, int64_t digits);
// HTML-escaped, as Markup does.
std::string EscapeHtml(std::string_view text);
// Whether text begins or ends with another.
bool StartsWith(std::string_view text, std::string_view prefix);
bool EndsWith(std::string_view text, std::string_view suffix);

}  // namespace sluice::jinja
