// Integers of any size, for values outside int64. Only the source file includes
// Boost.Multiprecision, because its headers take long to compile.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::jinja {

// Immutable, and cheap to copy.
class BigInteger {
 public:
  BigInteger() : BigInteger(0) {}
  BigInteger(int64_t value);
  // `digits`: decimal digits with an optional sign. REQUIRES: no other characters.
  static BigInteger FromDecimal(std::string_view digits);
  // `digits`: digits in base 2 to 36, without a sign. REQUIRES: valid digits.
  static BigInteger FromDigits(std::string_view digits, int base);
  // Returns the integer part of a finite double.
  static BigInteger FromDouble(double value);

  bool is_negative() const;
  bool is_zero() const;
  size_t num_bytes() const;
  std::optional<int64_t> ToInt64() const;
  double ToDouble() const;  // Returns infinity if too large.
  std::string ToDecimal() const;

  BigInteger operator-() const;
  friend BigInteger operator+(const BigInteger& a, const BigInteger& b);
  friend BigInteger operator-(const BigInteger& a, const BigInteger& b) { return a + (-b); }
  friend BigInteger operator*(const BigInteger& a, const BigInteger& b);
  // `quotient` is rounded down; `remainder` has the sign of `b`. REQUIRES: b is not zero.
  static void DivideFloor(const BigInteger& a, const BigInteger& b, BigInteger& quotient,
                          BigInteger& remainder);
  // Returns a number less than, equal to or greater than zero.
  static int Compare(const BigInteger& a, const BigInteger& b);
  friend bool operator==(const BigInteger& a, const BigInteger& b) { return Compare(a, b) == 0; }

 private:
  struct Number;
  explicit BigInteger(std::shared_ptr<const Number> number) : number_(std::move(number)) {}
  std::shared_ptr<const Number> number_;
};

}  // namespace sluice::jinja
