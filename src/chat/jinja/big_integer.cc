#include "chat/jinja/big_integer.h"

#include <cstdlib>

#include <boost/multiprecision/cpp_int.hpp>

#include "chat/jinja/budget.h"

namespace sluice::jinja {

struct BigInteger::Number {
  boost::multiprecision::cpp_int value;
};

namespace {

using boost::multiprecision::cpp_int;

// Spends budget steps for work that grows with the product of two sizes: multiplication, division,
// conversion.
void SpendProduct(size_t bytes, size_t other_bytes) {
  Spend(static_cast<int64_t>(1 + bytes * other_bytes / 1024));
}

}  // namespace

BigInteger::BigInteger(int64_t value) : number_(std::make_shared<Number>(Number{value})) {}

BigInteger BigInteger::FromDigits(std::string_view digits, int base) {
  SpendProduct(digits.size(), digits.size());
  cpp_int value;
  // Converts in groups of as many digits as fit into 63 bits.
  for (size_t position = 0; position < digits.size();) {
    uint64_t part = 0, scale = 1;
    for (; position < digits.size() && scale <= (uint64_t{1} << 57); ++position) {
      const char c = digits[position];
      part = part * static_cast<uint64_t>(base) +
             static_cast<uint64_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
      scale *= static_cast<uint64_t>(base);
    }
    value = value * scale + part;
  }
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
  // Converts through decimal text, which rounds only once, to nearest even.
  return std::strtod(ToDecimal().c_str(), nullptr);
}

std::string BigInteger::ToDecimal() const {
  SpendProduct(num_bytes(), num_bytes());
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
  SpendProduct(a.num_bytes(), b.num_bytes());
  return BigInteger(std::make_shared<BigInteger::Number>(
      BigInteger::Number{a.number_->value * b.number_->value}));
}

void BigInteger::DivideFloor(const BigInteger& a, const BigInteger& b, BigInteger& quotient,
                             BigInteger& remainder) {
  SpendProduct(a.num_bytes(), b.num_bytes());
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
