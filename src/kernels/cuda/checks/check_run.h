// Runs checks and prints the table of their results.
//
// A kernel's checks are written once: they use a device only through DeviceKernels. `sluice
// selftest` runs them on any device, checks_test.cc on the emulated one in every build.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "kernels/cuda/checks/checked_device.h"
#include "kernels/cuda/checks/comparison.h"

namespace sluice::checks {

struct CheckRow {
  std::string part, name, shape;
  bool passed = false;
  bool skipped = false;
  int64_t numbers = 0, failed = 0;
  double worst_error = 0, worst_bound = 0;
  double seconds = 0;
  uint64_t digest = 0;  // digest of all bytes that the check read from the device
  std::string message;  // why it failed or was skipped
};

// The cases that run on the emulated device. Other devices run all cases.
enum class CheckExtent : uint8_t {
  kSome,   // quick cases, with some of their shapes
  kQuick,  // all cases except those that take seconds on the emulator
  kSlow,   // only cases that take seconds on the emulator
};

struct CheckPart;

// Thread safety: one thread at a time.
class CheckRun {
 public:
  // `print` receives each line of the table as soon as it is known.
  CheckRun(const DeviceUnderTest& device, std::function<void(const std::string&)> print,
           CheckExtent extent = CheckExtent::kSome)
      : device_(device), print_(std::move(print)), extent_(extent) {}

  // Does nothing once the device is lost.
  void RunPart(const CheckPart& part);

  // Runs one check and adds its row. It passes if the check returns success (or nothing), its
  // memory had no failure, and all comparisons passed.
  template <typename Check>
  void Case(std::string_view name, std::string shape, const Check& check) {
    if (Runs(CheckExtent::kQuick)) RunCase(name, std::move(shape), WithStatus(check));
  }
  template <typename Check>
  void SlowCase(std::string_view name, std::string shape, const Check& check) {
    if (Runs(CheckExtent::kSlow)) RunCase(name, std::move(shape), WithStatus(check));
  }
  // Adds a row with the reason why something was not checked.
  void Skip(std::string_view name, std::string shape, std::string why);
  // Adds a row for an error that occurred before anything could be compared.
  void Fail(std::string_view name, std::string shape, const Error& error);

  const DeviceUnderTest& device() const { return device_; }
  // Returns whether to check shapes of real models' layers in addition to small ones.
  bool with_large_shapes() const { return !device_.is_emulated() && !small_shapes_alone_; }
  void LeaveOutLargeShapes() { small_shapes_alone_ = true; }
  // Returns whether to check all shapes, not just the smoke-test subset.
  bool with_all_shapes() const { return !device_.is_emulated() || extent_ != CheckExtent::kSome; }

  bool lost() const { return lost_; }
  const std::vector<CheckRow>& rows() const { return rows_; }
  bool passed() const;
  json::Value ToJson() const;

 private:
  bool small_shapes_alone_ = false;
  using CheckFunction = std::function<Status(CaseMemory&, Comparison&)>;
  template <typename Check>
  static CheckFunction WithStatus(const Check& check) {
    if constexpr (std::is_void_v<std::invoke_result_t<Check, CaseMemory&, Comparison&>>) {
      return [&check](CaseMemory& memory, Comparison& comparison) -> Status {
        check(memory, comparison);
        return {};
      };
    } else {
      return check;
    }
  }
  bool Runs(CheckExtent extent) const {
    return !device_.is_emulated() ||
           (extent == CheckExtent::kSlow) == (extent_ == CheckExtent::kSlow);
  }
  void RunCase(std::string_view name, std::string shape, const CheckFunction& check);
  void Add(CheckRow row);

  const DeviceUnderTest& device_;
  std::function<void(const std::string&)> print_;
  CheckExtent extent_;
  std::string part_;
  std::vector<CheckRow> rows_;
  bool lost_ = false;
};

// A part of the checks, selected by `--part`.
struct CheckPart {
  std::string_view name;
  std::string_view summary;
  std::function<void(CheckRun&)> run;
};

// Returns the checks of the kernels. Later parts rely on earlier ones.
std::span<const CheckPart> KernelCheckParts();

void CheckInstructions(CheckRun& run);
void CheckRows(CheckRun& run);
void CheckRope(CheckRun& run);
void CheckLinear(CheckRun& run);
void CheckLibrary(CheckRun& run);
void CheckGroupedLinear(CheckRun& run);
void CheckAttention(CheckRun& run);
void CheckLatent(CheckRun& run);
void CheckMixers(CheckRun& run);
void CheckExperts(CheckRun& run);
void CheckLora(CheckRun& run);
void CheckDummyWeights(CheckRun& run);

}  // namespace sluice::checks
