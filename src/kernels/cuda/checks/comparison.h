// Compares a device's results with a reference, within the allowed error.
//
// Tolerances are derived together with the reference, never chosen by hand. A check passes the
// exact value and a bound of the arithmetic error before the last rounding; the rounding to the
// output's type must be exactly as defined. A number is accepted if some value within the bound
// rounds to it. So data with exact sums allow no deviation at all. A narrow code may differ only if
// the distance of the value from the border between two codes is within the bound.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace sluice::checks {

// Half a unit in the last place of F32 and of BF16, relative to the number.
inline constexpr double kUnitF32 = 0x1p-24;
inline constexpr double kUnitBF16 = 0x1p-8;

// Returns a bound of the relative error of `roundings` consecutive roundings of unit `unit`
// (Higham's gamma).
double Gamma(double roundings, double unit = kUnitF32);

class Comparison {
 public:
  // Each function adds one output: the device's result, the exact value, and the bound of the error
  // before the output was rounded to its type.
  void AddF32(float got, double expected, double error);
  void AddBf16(uint16_t got, double expected, double error);
  // For E4M3; `expected` and `error` refer to the number before it is rounded to a code.
  void AddE4m3(uint8_t got, double expected, double error);
  // For outputs without rounding: codes, indices, bits.
  void AddEqual(int64_t got, int64_t expected);
  // For all other outputs: passes if |got - expected| <= `error`.
  void AddWithin(double got, double expected, double error);

  // Describes the outputs that follow; first_failure() shows the description.
  void SetSubject(std::string subject) { subject_ = std::move(subject); }

  bool passed() const { return failed_ == 0 && count_ > 0; }
  int64_t count() const { return count_; }
  int64_t failed() const { return failed_; }
  // Describe the output that is closest to its bound or farthest beyond it. worst_error() returns
  // the least error before the last rounding that explains this output; worst_bound() returns its
  // bound.
  double worst_error() const { return worst_error_; }
  double worst_bound() const { return worst_bound_; }
  // Returns, for example, "fp8 static: number 17: got 3.5, expected 3.25"; "" if all outputs were
  // accepted.
  const std::string& first_failure() const { return first_failure_; }

 private:
  // `low` and `high`: the range that is accepted. `needed`: the least error that explains `got`.
  void Add(double got, double expected, double low, double high, double needed, double error);
  // Counts a number that equals the expected one exactly.
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
