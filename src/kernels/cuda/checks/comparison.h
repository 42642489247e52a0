// How far a device's numbers are from the reference, and how far they may be.
//
// Tolerances are derived where the reference is computed, never chosen: a check gives the exact
// value and a bound of the error of the arithmetic in front of the last rounding; the rounding to
// the output's type is taken as it is defined. A number passes where some value within the bound
// rounds to it. So data whose sums are exact leave no room at all, and a narrow code may differ
// only where the value lies within the bound of the border between two codes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace sluice::checks {

// Half a step of F32's and BF16's last place, relative to the number.
inline constexpr double kUnitF32 = 0x1p-24;
inline constexpr double kUnitBF16 = 0x1p-8;

// The relative error of `roundings` roundings of unit `unit` in a row (Higham's gamma).
double Gamma(double roundings, double unit = kUnitF32);

class Comparison {
 public:
  // One output each: what the device gave, the exact value, and the bound of the error before the
  // output was rounded to its type.
  void AddF32(float got, double expected, double error);
  void AddBf16(uint16_t got, double expected, double error);
  // E4M3; the value and its bound are those of the number that is rounded to a code.
  void AddE4m3(uint8_t got, double expected, double error);
  // What has no rounding: codes, indices, bits.
  void AddEqual(int64_t got, int64_t expected);
  // Anything else, measured in its own unit: at most `error` away.
  void AddWithin(double got, double expected, double error);

  // What the numbers that follow are, for first_failure().
  void SetSubject(std::string subject) { subject_ = std::move(subject); }

  bool passed() const { return failed_ == 0 && count_ > 0; }
  int64_t count() const { return count_; }
  int64_t failed() const { return failed_; }
  // The number closest to its bound, or farthest beyond it: the least error before the last
  // rounding that explains it, and the bound.
  double worst_error() const { return worst_error_; }
  double worst_bound() const { return worst_bound_; }
  // "fp8 static: number 17: got 3.5, expected 3.25"; empty where all passed.
  const std::string& first_failure() const { return first_failure_; }

 private:
  // `low` and `high`: what passes. `needed`: the least error that explains `got`.
  void Add(double got, double expected, double low, double high, double needed, double error);
  // Counts a number that is exactly what was expected.
  void AddExact(double error);

  int64_t count_ = 0;
  int64_t failed_ = 0;
  double worst_ratio_ = -1;
  double worst_error_ = 0;
  double worst_bound_ = 0;
  std::string subject_;
  std::string first_failure_;
};

}  // namespace sluice::checks
