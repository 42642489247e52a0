// Integers outside int64, exact: enough of Python's for what templates do with ids and counters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::jinja {

class BigInteger {
 public:
  BigInteger() = default;
  BigInteger(int64_t value);
  // Decimal digits with an optional sign. REQUIRES: nothing else in it.
  static BigInteger FromDecimal(std::string_view digits);
  // Digits in base 2 to 36 without a sign. REQUIRES: valid digits.
  static BigInteger FromDigits(std::string_view digits, int base);
  // The integer part of a finite double.
  static BigInteger FromDouble(double value);

  bool is_negative() const { return negative_; }
  bool is_zero() const { return limbs_.empty(); }
  size_t num_bytes() const { return limbs_.size() * sizeof(uint32_t); }
  std::optional<int64_t> ToInt64() const;
  double ToDouble() const;  // Infinite if too large.
  std::string ToDecimal() const;

  BigInteger operator-() const;
  friend BigInteger operator+(const BigInteger& a, const BigInteger& b);
  friend BigInteger operator-(const BigInteger& a, const BigInteger& b) { return a + (-b); }
  friend BigInteger operator*(const BigInteger& a, const BigInteger& b);
  // Quotient rounded down and the remainder with the sign of `b`. REQUIRES: b is not zero.
  static void DivideFloor(const BigInteger& a, const BigInteger& b, BigInteger& quotient,
                          BigInteger& remainder);
  // Less than, equal to or greater than zero.
  static int Compare(const BigInteger& a, const BigInteger& b);
  friend bool operator==(const BigInteger& a, const BigInteger& b) { return Compare(a, b) == 0; }

 private:
  static int CompareMagnitude(const BigInteger& a, const BigInteger& b);
  void Trim();
  bool negative_ = false;
  std::vector<uint32_t> limbs_;  // Base 2^32, least significant first, no leading zero.
};

}  // namespace sluice::jinja
