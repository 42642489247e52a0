#include "chat/jinja/big_integer.h"

#include <algorithm>
#include <cmath>

namespace sluice::jinja {

BigInteger::BigInteger(int64_t value) : negative_(value < 0) {
  uint64_t magnitude = value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  for (; magnitude != 0; magnitude >>= 32) limbs_.push_back(static_cast<uint32_t>(magnitude));
}

void BigInteger::Trim() {
  while (!limbs_.empty() && limbs_.back() == 0) limbs_.pop_back();
  if (limbs_.empty()) negative_ = false;
}

BigInteger BigInteger::FromDigits(std::string_view digits, int base) {
  BigInteger result;
  for (const char c : digits) {
    const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    uint64_t carry = static_cast<uint64_t>(digit);
    for (uint32_t& limb : result.limbs_) {
      carry += static_cast<uint64_t>(limb) * static_cast<uint64_t>(base);
      limb = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) result.limbs_.push_back(static_cast<uint32_t>(carry));
  }
  result.Trim();
  return result;
}

BigInteger BigInteger::FromDecimal(std::string_view digits) {
  const bool negative = !digits.empty() && digits[0] == '-';
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.remove_prefix(1);
  BigInteger result = FromDigits(digits, 10);
  result.negative_ = negative && !result.is_zero();
  return result;
}

BigInteger BigInteger::FromDouble(double value) {
  int exponent = 0;
  const double fraction = std::frexp(std::trunc(std::fabs(value)), &exponent);
  // fraction * 2^exponent, fraction in [0.5, 1): 53 bits of it make an integer.
  BigInteger result(static_cast<int64_t>(std::ldexp(fraction, 53)));
  int shift = exponent - 53;
  if (shift < 0) {
    uint64_t magnitude = 0;
    for (size_t i = result.limbs_.size(); i-- > 0;) magnitude = magnitude << 32 | result.limbs_[i];
    result = BigInteger(static_cast<int64_t>(-shift >= 64 ? 0 : magnitude >> -shift));
  }
  for (; shift > 0; shift -= 30) result = result * BigInteger(int64_t{1} << std::min(shift, 30));
  result.negative_ = value < 0 && !result.is_zero();
  return result;
}

std::optional<int64_t> BigInteger::ToInt64() const {
  if (limbs_.size() > 2) return std::nullopt;
  uint64_t magnitude = 0;
  for (size_t i = limbs_.size(); i-- > 0;) magnitude = magnitude << 32 | limbs_[i];
  constexpr uint64_t kLimit = uint64_t{1} << 63;
  if (magnitude > kLimit || (magnitude == kLimit && !negative_)) return std::nullopt;
  return static_cast<int64_t>(negative_ ? ~magnitude + 1 : magnitude);
}

double BigInteger::ToDouble() const {
  // Through decimal text, which rounds once and to nearest even.
  const std::string digits = ToDecimal();
  return std::strtod(digits.c_str(), nullptr);
}

std::string BigInteger::ToDecimal() const {
  if (is_zero()) return "0";
  std::vector<uint32_t> limbs = limbs_;
  std::string digits;  // Reversed.
  while (!limbs.empty()) {
    uint64_t remainder = 0;
    for (size_t i = limbs.size(); i-- > 0;) {
      const uint64_t part = remainder << 32 | limbs[i];
      limbs[i] = static_cast<uint32_t>(part / 1'000'000'000);
      remainder = part % 1'000'000'000;
    }
    while (!limbs.empty() && limbs.back() == 0) limbs.pop_back();
    for (int i = 0; i < 9 && (remainder != 0 || !limbs.empty()); ++i, remainder /= 10) {
      digits.push_back(static_cast<char>('0' + remainder % 10));
    }
  }
  if (negative_) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return digits;
}

BigInteger BigInteger::operator-() const {
  BigInteger result = *this;
  result.negative_ = !negative_ && !is_zero();
  return result;
}

int BigInteger::CompareMagnitude(const BigInteger& a, const BigInteger& b) {
  if (a.limbs_.size() != b.limbs_.size()) return a.limbs_.size() < b.limbs_.size() ? -1 : 1;
  for (size_t i = a.limbs_.size(); i-- > 0;) {
    if (a.limbs_[i] != b.limbs_[i]) return a.limbs_[i] < b.limbs_[i] ? -1 : 1;
  }
  return 0;
}

int BigInteger::Compare(const BigInteger& a, const BigInteger& b) {
  if (a.negative_ != b.negative_) return a.negative_ ? -1 : 1;
  return a.negative_ ? CompareMagnitude(b, a) : CompareMagnitude(a, b);
}

BigInteger operator+(const BigInteger& a, const BigInteger& b) {
  BigInteger result;
  if (a.negative_ == b.negative_) {
    result.negative_ = a.negative_;
    uint64_t carry = 0;
    for (size_t i = 0; i < std::max(a.limbs_.size(), b.limbs_.size()) || carry != 0; ++i) {
      if (i < a.limbs_.size()) carry += a.limbs_[i];
      if (i < b.limbs_.size()) carry += b.limbs_[i];
      result.limbs_.push_back(static_cast<uint32_t>(carry));
      carry >>= 32;
    }
  } else {
    const bool a_is_larger = BigInteger::CompareMagnitude(a, b) >= 0;
    const BigInteger& large = a_is_larger ? a : b;
    const BigInteger& small = a_is_larger ? b : a;
    result.negative_ = large.negative_;
    int64_t borrow = 0;
    for (size_t i = 0; i < large.limbs_.size(); ++i) {
      int64_t part = static_cast<int64_t>(large.limbs_[i]) - borrow;
      if (i < small.limbs_.size()) part -= small.limbs_[i];
      borrow = part < 0;
      result.limbs_.push_back(static_cast<uint32_t>(part));
    }
  }
  result.Trim();
  return result;
}

BigInteger operator*(const BigInteger& a, const BigInteger& b) {
  BigInteger result;
  result.negative_ = a.negative_ != b.negative_;
  result.limbs_.assign(a.limbs_.size() + b.limbs_.size(), 0);
  for (size_t i = 0; i < a.limbs_.size(); ++i) {
    uint64_t carry = 0;
    for (size_t j = 0; j < b.limbs_.size(); ++j) {
      carry += static_cast<uint64_t>(a.limbs_[i]) * b.limbs_[j] + result.limbs_[i + j];
      result.limbs_[i + j] = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    result.limbs_[i + b.limbs_.size()] += static_cast<uint32_t>(carry);
  }
  result.Trim();
  return result;
}

void BigInteger::DivideFloor(const BigInteger& a, const BigInteger& b, BigInteger& quotient,
                             BigInteger& remainder) {
  // Bit by bit: these numbers are a few limbs long.
  BigInteger magnitude = b;
  magnitude.negative_ = false;
  BigInteger q, r;
  q.limbs_.assign(a.limbs_.size(), 0);
  for (size_t bit = a.limbs_.size() * 32; bit-- > 0;) {
    uint32_t carry = a.limbs_[bit / 32] >> (bit % 32) & 1;
    for (uint32_t& limb : r.limbs_) {
      const uint32_t next = limb >> 31;
      limb = limb << 1 | carry;
      carry = next;
    }
    if (carry != 0) r.limbs_.push_back(carry);
    if (CompareMagnitude(r, magnitude) >= 0) {
      r = r - magnitude;
      q.limbs_[bit / 32] |= uint32_t{1} << (bit % 32);
    }
  }
  q.negative_ = a.negative_ != b.negative_;
  q.Trim();
  r.negative_ = a.negative_;
  r.Trim();
  if (!r.is_zero() && r.negative_ != b.negative_) {
    q = q - BigInteger(1);
    r = r + b;
  }
  quotient = std::move(q);
  remainder = std::move(r);
}

}  // namespace sluice::jinja
