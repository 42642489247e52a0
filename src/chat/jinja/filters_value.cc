// Filters on single values: numbers, defaults, JSON.
#include <algorithm>
#include <cmath>

#include "chat/jinja/arguments.h"
#include "chat/jinja/filters.h"
#include "chat/jinja/numbers.h"
#include "chat/jinja/repr.h"

namespace sluice::jinja {

namespace {

Value Default(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_default", arguments, {"default_value", "boolean"});
  if (input.is_undefined() || (bound.Flag(1) && !Truth(input)))
    return bound.Get(0, Value::String(""));
  return input;
}

Value Absolute(Interpreter&, const Value& input, Arguments& arguments) {
  ExpectNoArguments("abs", arguments);
  if (input.is_undefined()) FailType("bad operand type for abs(): 'Undefined'");
  if (input.is_float()) return Value::Float(std::fabs(input.as_float()));
  if (!input.is_integral()) FailType("bad operand type for abs(): '" + input.TypeName() + "'");
  const BigInteger number = ToBigInteger(input);
  return Value::Integer(number.is_negative() ? -number : number);
}

bool IsConversionError(const Failure& failure) {
  return failure.kind == FailureKind::kType || failure.kind == FailureKind::kValue;
}

Value ToInteger(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_int", arguments, {"default", "base"});
  const int64_t base = bound.Index(1, 10);
  try {
    return input.is_string() ? ParseInteger(input.text(), base) : IntegerOf(input);
  } catch (const Failure& failure) {
    if (!IsConversionError(failure)) throw;
  }
  try {
    return IntegerOf(Value::Float(FloatOf(input)));
  } catch (const Failure& failure) {
    if (!IsConversionError(failure) && failure.kind != FailureKind::kOverflow) throw;
  }
  return bound.Get(0, Value::Integer(int64_t{0}));
}

Value ToFloat(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_float", arguments, {"default"});
  try {
    return Value::Float(FloatOf(input));
  } catch (const Failure& failure) {
    if (!IsConversionError(failure)) throw;
  }
  return bound.Get(0, Value::Float(0.0));
}

Value Round(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_round", arguments, {"precision", "method"});
  const std::string method = bound.Has(1) ? Str(bound[1]) : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    Fail(FailureKind::kRuntime, "method must be common, ceil or floor");
  }
  if (input.is_undefined()) FailType("type Undefined doesn't define __round__ method");
  if (!input.is_number()) FailType("type " + input.TypeName() + " doesn't define __round__ method");
  const Value precision = bound.Get(0, Value::Integer(int64_t{0}));
  if (method == "common") {
    if (precision.is_none()) {
      if (input.is_float()) return IntegerOf(Value::Float(std::nearbyint(input.as_float())));
      return Posit(input);
    }
    const int64_t digits = ToIndex(precision, "an integer is required, not a value");
    if (input.is_float()) return Value::Float(RoundDigits(input.as_float(), digits));
    if (digits >= 0 || !input.fits_int64()) return Posit(input);
    // Rounds half to even, as Python rounds integers.
    int64_t unit = 1;
    for (int64_t i = digits; i < 0; ++i) {
      if (__builtin_mul_overflow(unit, int64_t{10}, &unit)) return Value::Integer(int64_t{0});
    }
    const int64_t number = input.as_int64();
    const int64_t rest = ((number % unit) + unit) % unit;
    int64_t down = number - rest;
    if (rest > unit - rest || (rest == unit - rest && (down / unit) % 2 != 0)) down += unit;
    return Value::Integer(down);
  }
  const Value scale = Apply(BinaryOperator::kPower, Value::Integer(int64_t{10}), precision);
  const double scaled = ToDouble(Apply(BinaryOperator::kMultiply, input, scale));
  const Value rounded =
      IntegerOf(Value::Float(method == "ceil" ? std::ceil(scaled) : std::floor(scaled)));
  return Apply(BinaryOperator::kDivide, rounded, scale);
}

Value Attribute(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_attr", arguments, {"name"}, 1);
  if (auto value = FindAttribute(input, bound.Text(0))) return *std::move(value);
  return Value::Undefined("'" + input.TypeName() + " object' has no attribute " + Repr(bound[0]));
}

Value ToJsonFilter(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.Flag(0);
  style.sort_keys = bound.Flag(3);
  if (!bound.IsNoneOrAbsent(1)) {
    style.item_separator = ",";
    if (bound[1].is_string()) {
      style.indent = bound[1].text();
    } else {
      const int64_t width = ToIndex(bound[1], "can't multiply sequence by non-int");
      if (width > 100000)
        Fail(FailureKind::kLimit, "the indent of the filter 'tojson' is too large");
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
  }
  if (!bound.IsNoneOrAbsent(2)) {
    const std::vector<Value> separators = ToVector(bound[2]);
    if (separators.size() != 2) FailValue("the separators of the filter 'tojson' must be two");
    for (const Value& separator : separators) {
      if (!separator.is_string()) FailType("the separators of the filter 'tojson' must be strings");
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  return Value::String(ToJson(input, style));
}

}  // namespace

void AddValueFilters(FilterTable& table) {
  table.insert({{"default", Default},
                {"d", Default},
                {"abs", Absolute},
                {"int", ToInteger},
                {"float", ToFloat},
                {"round", Round},
                {"attr", Attribute},
                {"tojson", ToJsonFilter}});
}

}  // namespace sluice::jinja
