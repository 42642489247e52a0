// Implements the tests of the language: `value is name(arguments)`.
#include <unordered_map>

#include "chat/jinja/arguments.h"
#include "chat/jinja/filters.h"
#include "chat/jinja/format.h"
#include "chat/jinja/repr.h"

namespace sluice::jinja {

namespace {

using Test = bool (*)(const Value& value, Arguments& arguments);

template <bool (*Check)(const Value&)>
bool Plain(const Value& value, Arguments& arguments) {
  ExpectNoArguments("this test", arguments);
  return Check(value);
}

template <bool (*Check)(const Value&, const Value&)>
bool WithOther(const Value& value, Arguments& arguments) {
  const Bound bound("this test", arguments, {"other"}, 1);
  return Check(value, bound[0]);
}

bool IsSequence(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kBytes:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict: return true;
    case Kind::kObject: return value.object().HasItems();
    default: return false;
  }
}

bool Remainder(const Value& value, int64_t divisor, int64_t remainder) {
  return Equal(Apply(BinaryOperator::kModulo, value, Value::Integer(divisor)),
               Value::Integer(remainder));
}

bool IsOdd(const Value& value) {
  return Remainder(value, 2, 1);
}
bool IsEven(const Value& value) {
  return Remainder(value, 2, 0);
}
bool IsDivisible(const Value& value, const Value& by) {
  return Equal(Apply(BinaryOperator::kModulo, value, by), Value::Integer(int64_t{0}));
}
bool IsDefined(const Value& value) {
  return !value.is_undefined();
}
bool IsUndefined(const Value& value) {
  return value.is_undefined();
}
bool IsNone(const Value& value) {
  return value.is_none();
}
bool IsBoolean(const Value& value) {
  return value.is_bool();
}
bool IsTrue(const Value& value) {
  return value.is_bool() && value.as_bool();
}
bool IsFalse(const Value& value) {
  return value.is_bool() && !value.as_bool();
}
bool IsInteger(const Value& value) {
  return value.is_integral() && !value.is_bool();
}
bool IsFloat(const Value& value) {
  return value.is_float();
}
bool IsNumber(const Value& value) {
  return value.is_number();
}
bool IsString(const Value& value) {
  return value.is_string();
}
bool IsMapping(const Value& value) {
  return value.is_dict();
}
bool IsIterable(const Value& value) {
  return TryIterate(value) != nullptr;
}
bool IsCallableValue(const Value& value) {
  return value.is_undefined() || (value.kind() == Kind::kObject && value.object().IsCallable());
}
bool IsEscaped(const Value& value) {
  return value.is_markup();
}
bool IsLowerText(const Value& value) {
  return HasCase(Str(value), false);
}
bool IsUpperText(const Value& value) {
  return HasCase(Str(value), true);
}
bool IsFilterName(const Value& value) {
  Hash(value);
  return value.is_string() && IsFilter(value.text());
}
bool IsTestName(const Value& value) {
  Hash(value);
  return value.is_string() && IsTest(value.text());
}
bool IsNotEqual(const Value& a, const Value& b) {
  return !Equal(a, b);
}
bool IsIn(const Value& value, const Value& container) {
  return Contains(container, value);
}
template <Order kOrder>
bool IsOrdered(const Value& a, const Value& b) {
  return Compare(kOrder, a, b);
}

const std::unordered_map<std::string_view, Test>& Tests() {
  static const auto& tests = *new std::unordered_map<std::string_view, Test>{
      {"odd", Plain<IsOdd>},
      {"even", Plain<IsEven>},
      {"divisibleby", WithOther<IsDivisible>},
      {"defined", Plain<IsDefined>},
      {"undefined", Plain<IsUndefined>},
      {"filter", Plain<IsFilterName>},
      {"test", Plain<IsTestName>},
      {"none", Plain<IsNone>},
      {"boolean", Plain<IsBoolean>},
      {"false", Plain<IsFalse>},
      {"true", Plain<IsTrue>},
      {"integer", Plain<IsInteger>},
      {"float", Plain<IsFloat>},
      {"lower", Plain<IsLowerText>},
      {"upper", Plain<IsUpperText>},
      {"string", Plain<IsString>},
      {"mapping", Plain<IsMapping>},
      {"number", Plain<IsNumber>},
      {"sequence", Plain<IsSequence>},
      {"iterable", Plain<IsIterable>},
      {"callable", Plain<IsCallableValue>},
      {"sameas", WithOther<Same>},
      {"escaped", Plain<IsEscaped>},
      {"in", WithOther<IsIn>},
      {"==", WithOther<Equal>},
      {"eq", WithOther<Equal>},
      {"equalto", WithOther<Equal>},
      {"!=", WithOther<IsNotEqual>},
      {"ne", WithOther<IsNotEqual>},
      {">", WithOther<IsOrdered<Order::kGreater>>},
      {"gt", WithOther<IsOrdered<Order::kGreater>>},
      {"greaterthan", WithOther<IsOrdered<Order::kGreater>>},
      {">=", WithOther<IsOrdered<Order::kGreaterEqual>>},
      {"ge", WithOther<IsOrdered<Order::kGreaterEqual>>},
      {"<", WithOther<IsOrdered<Order::kLess>>},
      {"lt", WithOther<IsOrdered<Order::kLess>>},
      {"lessthan", WithOther<IsOrdered<Order::kLess>>},
      {"<=", WithOther<IsOrdered<Order::kLessEqual>>},
      {"le", WithOther<IsOrdered<Order::kLessEqual>>},
  };
  return tests;
}

}  // namespace

bool IsTest(std::string_view name) {
  return Tests().contains(name);
}

bool CallTest(std::string_view name, const Value& input, Arguments& arguments) {
  const auto found = Tests().find(name);
  if (found == Tests().end())
    Fail(FailureKind::kRuntime, "No test named '" + std::string(name) + "' found.");
  return found->second(input, arguments);
}

}  // namespace sluice::jinja
