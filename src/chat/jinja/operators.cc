#include "chat/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "base/text_search.h"
#include "chat/jinja/format.h"
#include "chat/jinja/repr.h"

namespace sluice::jinja {

namespace {

// Maximum size of an integer. Python refuses to print more than 4300 digits; no template needs
// larger integers.
constexpr size_t kMaxIntegerBytes = 1792;

const char* Symbol(BinaryOperator op) {
  switch (op) {
    case BinaryOperator::kAdd: return "+";
    case BinaryOperator::kSubtract: return "-";
    case BinaryOperator::kMultiply: return "*";
    case BinaryOperator::kDivide: return "/";
    case BinaryOperator::kFloorDivide: return "//";
    case BinaryOperator::kModulo: return "%";
    case BinaryOperator::kPower: return "** or pow()";
  }
  return "?";
}

Value Checked(BigInteger value) {
  if (value.num_bytes() > kMaxIntegerBytes)
    Fail(FailureKind::kLimit, "the chat template makes an integer that is too large");
  return Value::Integer(std::move(value));
}

[[noreturn]] void FailZero(const char* message) {
  Fail(FailureKind::kRuntime, message);
}

double FloorModulo(double a, double b) {
  double remainder = std::fmod(a, b);
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) remainder += b;
  } else {
    remainder = std::copysign(0.0, b);
  }
  return remainder;
}

double FloorQuotient(double a, double b) {
  const double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) quotient -= 1.0;
  if (quotient == 0) return std::copysign(0.0, a / b);
  double floor = std::floor(quotient);
  if (quotient - floor > 0.5) floor += 1.0;
  return floor;
}

Value PowerOfIntegers(const Value& left, const Value& right) {
  if (!right.fits_int64())
    Fail(FailureKind::kLimit, "the chat template makes an integer that is too large");
  int64_t exponent = right.as_int64();
  if (exponent < 0) {
    const double base = ToDouble(left);
    if (base == 0) FailZero("0.0 cannot be raised to a negative power");
    return Value::Float(std::pow(base, static_cast<double>(exponent)));
  }
  BigInteger base = ToBigInteger(left);
  BigInteger result(1);
  while (exponent > 0) {
    if (exponent & 1) result = ToBigInteger(Checked(result * base));
    exponent >>= 1;
    if (exponent > 0) {
      base = base * base;
      if (base.num_bytes() > 2 * kMaxIntegerBytes) Checked(base);
    }
  }
  return Checked(std::move(result));
}

Value ApplyIntegers(BinaryOperator op, const Value& left, const Value& right) {
  if (left.fits_int64() && right.fits_int64()) {
    const int64_t a = left.as_int64();
    const int64_t b = right.as_int64();
    int64_t result = 0;
    switch (op) {
      case BinaryOperator::kAdd:
        if (!__builtin_add_overflow(a, b, &result)) return Value::Integer(result);
        break;
      case BinaryOperator::kSubtract:
        if (!__builtin_sub_overflow(a, b, &result)) return Value::Integer(result);
        break;
      case BinaryOperator::kMultiply:
        if (!__builtin_mul_overflow(a, b, &result)) return Value::Integer(result);
        break;
      case BinaryOperator::kFloorDivide:
        if (b == 0) FailZero("integer division or modulo by zero");
        if (b == -1) break;
        return Value::Integer(a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0));
      case BinaryOperator::kModulo:
        if (b == 0) FailZero("integer modulo by zero");
        if (b == -1) return Value::Integer(int64_t{0});
        result = a % b;
        return Value::Integer(result != 0 && (result < 0) != (b < 0) ? result + b : result);
      default: break;
    }
  }
  switch (op) {
    case BinaryOperator::kAdd: return Checked(ToBigInteger(left) + ToBigInteger(right));
    case BinaryOperator::kSubtract: return Checked(ToBigInteger(left) - ToBigInteger(right));
    case BinaryOperator::kMultiply: return Checked(ToBigInteger(left) * ToBigInteger(right));
    case BinaryOperator::kPower: return PowerOfIntegers(left, right);
    case BinaryOperator::kDivide: {
      const double divisor = ToDouble(right);
      if (divisor == 0) FailZero("division by zero");
      return Value::Float(ToDouble(left) / divisor);
    }
    case BinaryOperator::kFloorDivide:
    case BinaryOperator::kModulo: {
      const BigInteger divisor = ToBigInteger(right);
      if (divisor.is_zero()) FailZero("integer division or modulo by zero");
      BigInteger quotient, remainder;
      BigInteger::DivideFloor(ToBigInteger(left), divisor, quotient, remainder);
      return Value::Integer(op == BinaryOperator::kModulo ? std::move(remainder)
                                                          : std::move(quotient));
    }
  }
  return Value::None();
}

Value ApplyFloats(BinaryOperator op, double a, double b) {
  switch (op) {
    case BinaryOperator::kAdd: return Value::Float(a + b);
    case BinaryOperator::kSubtract: return Value::Float(a - b);
    case BinaryOperator::kMultiply: return Value::Float(a * b);
    case BinaryOperator::kDivide:
      if (b == 0) FailZero("float division by zero");
      return Value::Float(a / b);
    case BinaryOperator::kFloorDivide:
      if (b == 0) FailZero("float floor division by zero");
      return Value::Float(FloorQuotient(a, b));
    case BinaryOperator::kModulo:
      if (b == 0) FailZero("float modulo");
      return Value::Float(FloorModulo(a, b));
    case BinaryOperator::kPower: {
      if (a == 0 && b < 0) FailZero("0.0 cannot be raised to a negative power");
      if (a < 0 && b != std::floor(b)) FailType("complex numbers are not supported");
      const double result = std::pow(a, b);
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
        Fail(FailureKind::kOverflow, "(34, 'Numerical result out of range')");
      }
      return Value::Float(result);
    }
  }
  return Value::None();
}

Value Repeat(const Value& sequence, const Value& times) {
  const int64_t count = std::max<int64_t>(ToIndex(times, "can't multiply sequence by non-int"), 0);
  const auto total = [count](size_t size) {
    const auto product =
        static_cast<unsigned __int128>(size) * static_cast<unsigned __int128>(count);
    return product > SIZE_MAX / 64 ? SIZE_MAX / 64 : static_cast<size_t>(product);
  };
  if (sequence.is_string()) {
    SpendText(total(sequence.text().size()));
    if (sequence.text().empty()) return sequence;
    if (sequence.text().size() == 1) {
      return Value::StringLike(std::string(static_cast<size_t>(count), sequence.text()[0]),
                               sequence);
    }
    Spend(count / 8);
    std::string text;
    text.reserve(total(sequence.text().size()));
    for (int64_t i = 0; i < count; ++i) text += sequence.text();
    return Value::StringLike(std::move(text), sequence);
  }
  const std::vector<Value>& items = sequence.items();
  const size_t size = total(items.size());
  RequireMemory(size * sizeof(Value));
  Spend(static_cast<int64_t>(size));
  std::vector<Value> result;
  result.reserve(size);
  if (!items.empty()) {
    for (int64_t i = 0; i < count; ++i) result.insert(result.end(), items.begin(), items.end());
  }
  return sequence.is_list() ? Value::List(std::move(result)) : Value::Tuple(std::move(result));
}

Value Concatenate(const Value& left, const Value& right) {
  if (left.is_string()) {
    SpendText(left.text().size() + right.text().size());
    if (left.is_markup() == right.is_markup()) {
      std::string text;
      text.reserve(left.text().size() + right.text().size());
      text += left.text();
      text += right.text();
      return Value::StringLike(std::move(text), left);
    }
    // Markup escapes a text that is concatenated with it.
    return Value::Markup((left.is_markup() ? left.text() : EscapeHtml(left.text())) +
                         (right.is_markup() ? right.text() : EscapeHtml(right.text())));
  }
  const size_t size = left.items().size() + right.items().size();
  Spend(static_cast<int64_t>(size / 4));
  RequireMemory(size * sizeof(Value));
  std::vector<Value> items;
  items.reserve(size);
  items.insert(items.end(), left.items().begin(), left.items().end());
  items.insert(items.end(), right.items().begin(), right.items().end());
  return left.is_list() ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
}

bool IsSequenceToRepeat(const Value& value) {
  return value.is_string() || value.is_list() || value.is_tuple();
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  const auto escaped = [](char c) -> std::string_view {
    switch (c) {
      case '&': return "&amp;";
      case '<': return "&lt;";
      case '>': return "&gt;";
      case '\'': return "&#39;";
      case '"': return "&#34;";
      default: return {};
    }
  };
  SpendCharacters(text.size());
  size_t size = 0;
  for (const char c : text) size += std::max<size_t>(escaped(c).size(), 1);
  SpendText(size);
  std::string out;
  out.reserve(size);
  for (const char c : text) {
    const std::string_view name = escaped(c);
    name.empty() ? out.push_back(c) : (void)out.append(name);
  }
  return out;
}

bool StartsWith(std::string_view text, std::string_view prefix) {
  Spend(1);
  if (text.size() < prefix.size()) return false;
  SpendCopy(prefix.size());
  return text.starts_with(prefix);
}

bool EndsWith(std::string_view text, std::string_view suffix) {
  Spend(1);
  if (text.size() < suffix.size()) return false;
  SpendCopy(suffix.size());
  return text.ends_with(suffix);
}

double ToDouble(const Value& number) {
  if (number.is_float()) return number.as_float();
  if (number.fits_int64()) return static_cast<double>(number.as_int64());
  const double value = number.big().ToDouble();
  if (std::isinf(value)) Fail(FailureKind::kOverflow, "int too large to convert to float");
  return value;
}

BigInteger ToBigInteger(const Value& integer) {
  return integer.fits_int64() ? BigInteger(integer.as_int64()) : integer.big();
}

int64_t ToIndex(const Value& value, const char* what) {
  if (value.is_undefined()) value.FailUndefined();
  if (value.fits_int64()) return value.as_int64();
  if (value.kind() == Kind::kBigInteger) return value.big().is_negative() ? INT64_MIN : INT64_MAX;
  FailType(std::string(what) + " of type '" + value.TypeName() + "'");
}

double RoundDigits(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 308) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits <= 0) {
    // Powers of ten are exact up to 10^22; ties round to even.
    const double scale = std::pow(10.0, static_cast<double>(-digits));
    const double scaled = value / scale;
    double rounded = std::nearbyint(scaled);
    return rounded * scale;
  }
  return std::strtod(FormatFixed(value, static_cast<int>(digits)).c_str(), nullptr);
}

Value Apply(BinaryOperator op, const Value& left, const Value& right) {
  if (left.is_undefined()) left.FailUndefined();
  if (op == BinaryOperator::kModulo && left.is_string()) return PercentFormat(left, right);
  if (right.is_undefined()) right.FailUndefined();
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral()) return ApplyIntegers(op, left, right);
    return ApplyFloats(op, ToDouble(left), ToDouble(right));
  }
  if (op == BinaryOperator::kAdd) {
    if (left.is_string() && right.is_string()) return Concatenate(left, right);
    if (left.kind() == right.kind() && (left.is_list() || left.is_tuple()))
      return Concatenate(left, right);
    if (left.is_string() || left.is_list() || left.is_tuple()) {
      FailType("can only concatenate " + left.TypeName() + " (not \"" + right.TypeName() +
               "\") to " + left.TypeName());
    }
  }
  if (op == BinaryOperator::kMultiply) {
    if (IsSequenceToRepeat(left) && right.is_integral()) return Repeat(left, right);
    if (IsSequenceToRepeat(right) && left.is_integral()) return Repeat(right, left);
    if (IsSequenceToRepeat(left) || IsSequenceToRepeat(right)) {
      FailType("can't multiply sequence by non-int of type '" +
               (IsSequenceToRepeat(left) ? right.TypeName() : left.TypeName()) + "'");
    }
  }
  FailType(std::string("unsupported operand type(s) for ") + Symbol(op) + ": '" + left.TypeName() +
           "' and '" + right.TypeName() + "'");
}

Value Negate(const Value& value) {
  if (value.is_undefined()) value.FailUndefined();
  if (value.is_float()) return Value::Float(-value.as_float());
  if (value.is_integral()) return Value::Integer(-ToBigInteger(value));
  FailType("bad operand type for unary -: '" + value.TypeName() + "'");
}

Value Posit(const Value& value) {
  if (value.is_undefined()) value.FailUndefined();
  if (value.is_bool()) return Value::Integer(value.as_int64());
  if (value.is_number()) return value;
  FailType("bad operand type for unary +: '" + value.TypeName() + "'");
}

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInteger: return value.as_int64() != 0;
    case Kind::kBigInteger: return true;
    case Kind::kFloat: return value.as_float() != 0;
    case Kind::kString: return !value.text().empty();
    case Kind::kBytes: return !value.bytes().empty();
    case Kind::kList:
    case Kind::kTuple: return !value.items().empty();
    case Kind::kDict: return value.dict().size() != 0;
    case Kind::kObject: return value.object().Truth();
  }
  return true;
}

namespace {

// Returns a number less than, equal to or greater than zero; 2 if one operand is NaN.
int CompareNumbers(const Value& a, const Value& b) {
  if (a.fits_int64() && b.fits_int64())
    return a.as_int64() < b.as_int64() ? -1 : a.as_int64() > b.as_int64();
  if (a.is_integral() && b.is_integral())
    return BigInteger::Compare(ToBigInteger(a), ToBigInteger(b));
  if (a.is_float() && b.is_float()) {
    const double x = a.as_float(), y = b.as_float();
    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
  }
  if (b.is_float()) {
    const double y = b.as_float();
    if (std::isnan(y)) return 2;
    if (std::isinf(y)) return y > 0 ? -1 : 1;
    // Exact: compares the integer with the integer part of the float, then considers the fraction.
    const int order = BigInteger::Compare(ToBigInteger(a), BigInteger::FromDouble(y));
    if (order != 0) return order;
    const double fraction = y - std::trunc(y);
    return fraction > 0 ? -1 : fraction < 0 ? 1 : 0;
  }
  const int order = CompareNumbers(b, a);
  return order == 2 ? 2 : -order;
}

}  // namespace

bool Equal(const Value& a, const Value& b) {
  Spend(1);
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  if (a.heap() != nullptr && a.heap() == b.heap()) return true;
  switch (a.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString:
      if (a.text().size() != b.text().size()) return false;
      SpendCopy(a.text().size());
      return a.text() == b.text();
    case Kind::kBytes:
      if (a.bytes().size() != b.bytes().size()) return false;
      SpendCopy(a.bytes().size());
      return a.bytes() == b.bytes();
    case Kind::kList:
    case Kind::kTuple: {
      const auto& x = a.items();
      const auto& y = b.items();
      return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin(), Equal);
    }
    case Kind::kDict:
      if (a.dict().size() != b.dict().size()) return false;
      for (const auto& [key, value] : a.dict().entries()) {
        const Value* other = b.dict().Find(key);
        if (other == nullptr || !Equal(value, *other)) return false;
      }
      return true;
    case Kind::kObject: {
      const auto* x = a.As<Range>();
      const auto* y = b.As<Range>();
      if (x != nullptr && y != nullptr)
        return Equal(Value::List(ToVector(a)), Value::List(ToVector(b)));
      return false;
    }
    default: return false;
  }
}

bool Compare(Order order, const Value& a, const Value& b) {
  Spend(1);
  if (a.is_undefined()) a.FailUndefined();
  if (b.is_undefined()) b.FailUndefined();
  const auto decide = [order](int sign) {
    switch (order) {
      case Order::kLess: return sign < 0;
      case Order::kLessEqual: return sign <= 0;
      case Order::kGreater: return sign > 0;
      case Order::kGreaterEqual: return sign >= 0;
    }
    return false;
  };
  if (a.is_number() && b.is_number()) {
    const int sign = CompareNumbers(a, b);
    return sign != 2 && decide(sign);
  }
  // UTF-8 bytes have the same order as code points.
  if (a.is_string() && b.is_string()) {
    SpendCopy(std::min(a.text().size(), b.text().size()));
    return decide(a.text().compare(b.text()));
  }
  if (a.kind() == b.kind() && (a.is_list() || a.is_tuple())) {
    const auto& x = a.items();
    const auto& y = b.items();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!Equal(x[i], y[i])) return Compare(order, x[i], y[i]);
    }
    return decide(x.size() < y.size() ? -1 : x.size() > y.size());
  }
  static constexpr const char* kSymbols[] = {"<", "<=", ">", ">="};
  FailType(std::string("'") + kSymbols[static_cast<int>(order)] +
           "' not supported between instances of '" + a.TypeName() + "' and '" + b.TypeName() +
           "'");
}

bool Contains(const Value& haystack, const Value& needle) {
  switch (haystack.kind()) {
    case Kind::kString:
      if (!needle.is_string()) {
        FailType("'in <string>' requires string as left operand, not " + needle.TypeName());
      }
      SpendSearch(haystack.text().size() + needle.text().size());
      return TextSearcher(needle.text()).Find(haystack.text()) != std::string_view::npos;
    case Kind::kDict: return haystack.dict().Find(needle) != nullptr;
    default: break;
  }
  if (const auto* view = haystack.As<DictView>();
      view != nullptr && view->part() == DictView::Part::kKeys) {
    return view->dict().dict().Find(needle) != nullptr;
  }
  const IteratorPointer iterator = TryIterate(haystack);
  if (iterator == nullptr)
    FailType("argument of type '" + haystack.TypeName() + "' is not iterable");
  Value item;
  while (iterator->Next(item)) {
    if (Equal(item, needle)) return true;
  }
  return false;
}

bool Same(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kNone: return true;
    case Kind::kBool:
    case Kind::kInteger:
    case Kind::kBigInteger:
    case Kind::kFloat:
    case Kind::kString: return Equal(a, b) && a.is_markup() == b.is_markup();
    case Kind::kTuple:
      if (a.items().empty() && b.items().empty()) return true;
      [[fallthrough]];
    default: return a.heap() == b.heap();
  }
}

size_t HashText(std::string_view text) {
  return std::hash<std::string_view>()(text);
}

size_t Hash(const Value& value) {
  Spend(1);
  switch (value.kind()) {
    case Kind::kString: SpendCopy(value.text().size()); return HashText(value.text());
    case Kind::kNone: return 0x4E;
    case Kind::kMissing:
    case Kind::kUndefined: return 0x55;
    case Kind::kBool:
    case Kind::kInteger: return std::hash<int64_t>()(value.as_int64());
    case Kind::kBigInteger: return std::hash<double>()(value.big().ToDouble());
    case Kind::kFloat: {
      const double number = value.as_float();
      if (number >= -9.2e18 && number <= 9.2e18 && number == std::floor(number)) {
        return std::hash<int64_t>()(static_cast<int64_t>(number));
      }
      return std::hash<double>()(number);
    }
    case Kind::kBytes: SpendCopy(value.bytes().size()); return HashText(value.bytes());
    case Kind::kTuple: {
      size_t hash = 0x345678;
      for (const Value& item : value.items()) hash = (hash ^ Hash(item)) * 1000003;
      return hash;
    }
    case Kind::kList:
    case Kind::kDict: FailType("unhashable type: '" + value.TypeName() + "'");
    case Kind::kObject: return std::hash<const void*>()(value.heap().get());
  }
  return 0;
}

size_t Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined: return 0;
    case Kind::kString: return value.string().num_characters;
    case Kind::kBytes: return value.bytes().size();
    case Kind::kList:
    case Kind::kTuple: return value.items().size();
    case Kind::kDict: return value.dict().size();
    case Kind::kObject:
      if (const auto length = value.object().Length()) return *length;
      break;
    default: break;
  }
  FailType("object of type '" + value.TypeName() + "' has no len()");
}

}  // namespace sluice::jinja
