#include "chat/jinja/big_integer.h"

#include <cstdlib>

#include <boost/multiprecision/cpp_int.hpp>

namespace sluice::jinja {

struct BigInteger::Number {
  boost::multiprecision::cpp_int value;
};

namespace {

using boost::multiprecision::cpp_int;

}  // namespace

BigInteger::BigInteger(int64_t value) : number_(std::make_shared<Number>(Number{value})) {}

BigInteger BigInteger::FromDigits(std::string_view digits, int base) {
  cpp_int value;
  for (const char c : digits) value = value * base + (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  return BigInteger(std::make_shared<Number>(Number{std::move(value)}));
}

BigInteger BigInteger::FromDecimal(std::string_view digits) {
  const bool is_negative = digits.starts_with('-');
  if (is_negative || digits.starts_with('+')) digits.remove_prefix(1);
  const BigInteger magnitude = FromDigits(digits, 10);
  return is_negative ? -magnitude : magnitude;
}

BigInteger BigInteger::FromDouble(double value) {
  return BigInteger(std::make_shared<Number>(Number{cpp_int(value)}));
}

bool BigInteger::is_negative() const {
  return number_->value < 0;
}
bool BigInteger::is_zero() const {
  return number_->value.is_zero();
}
size_t BigInteger::num_bytes() const {
  return number_->value.backend().size() * sizeof(boost::multiprecision::limb_type);
}

std::optional<int64_t> BigInteger::ToInt64() const {
  if (number_->value < INT64_MIN || number_->value > INT64_MAX) return std::nullopt;
  return number_->value.convert_to<int64_t>();
}

double BigInteger::ToDouble() const {
  // Through decimal text, which rounds once and to nearest even.
  return std::strtod(ToDecimal().c_str(), nullptr);
}

std::string BigInteger::ToDecimal() const {
  return number_->value.str();
}

BigInteger BigInteger::operator-() const {
  return BigInteger(std::make_shared<Number>(Number{-number_->value}));
}
BigInteger operator+(const BigInteger& a, const BigInteger& b) {
  return BigInteger(std::make_shared<BigInteger::Number>(
      BigInteger::Number{a.number_->value + b.number_->value}));
}
BigInteger operator*(const BigInteger& a, const BigInteger& b) {
  return BigInteger(std::make_shared<BigInteger::Number>(
      BigInteger::Number{a.number_->value * b.number_->value}));
}

void BigInteger::DivideFloor(const BigInteger& a, const BigInteger& b, BigInteger& quotient,
                             BigInteger& remainder) {
  Number q, r;
  boost::multiprecision::divide_qr(a.number_->value, b.number_->value, q.value, r.value);
  if (!r.value.is_zero() && (r.value < 0) != b.is_negative()) {
    --q.value;
    r.value += b.number_->value;
  }
  quotient = BigInteger(std::make_shared<Number>(std::move(q)));
  remainder = BigInteger(std::make_shared<Number>(std::move(r)));
}

int BigInteger::Compare(const BigInteger& a, const BigInteger& b) {
  return a.number_->value.compare(b.number_->value);
}

}  // namespace sluice::jinja
