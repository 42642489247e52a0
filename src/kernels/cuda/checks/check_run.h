// One run of the checks: what is asked for, and the table of what came out.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
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
  std::string message;  // why it failed or was skipped
};

struct CheckPart;

// Thread safety: one thread at a time.
class CheckRun {
 public:
  // `print` gets each line of the table as soon as it is known.
  CheckRun(const DeviceUnderTest& device, std::function<void(const std::string&)> print)
      : device_(device), print_(std::move(print)) {}

  // Nothing runs once the device is lost.
  void RunPart(const CheckPart& part);

  // Runs one check and writes its row: passed where it returns success and all that it compared
  // passed.
  using Check = std::function<Status(CaseMemory&, Comparison&)>;
  void Case(std::string_view name, std::string shape, const Check& check);
  // A row that says why something was not checked.
  void Skip(std::string_view name, std::string shape, std::string why);
  // A row for what is wrong before anything could be compared.
  void Fail(std::string_view name, std::string shape, const Error& error);

  const DeviceUnderTest& device() const { return device_; }
  // Shapes of real models' layers come on top of small ones.
  bool with_large_shapes() const { return !device_.is_emulated(); }

  bool lost() const { return lost_; }
  const std::vector<CheckRow>& rows() const { return rows_; }
  bool passed() const;
  json::Value ToJson() const;

 private:
  void Add(CheckRow row);

  const DeviceUnderTest& device_;
  std::function<void(const std::string&)> print_;
  std::string part_;
  std::vector<CheckRow> rows_;
  bool lost_ = false;
};

// What `--part` names.
struct CheckPart {
  std::string_view name;
  std::string_view summary;
  std::function<void(CheckRun&)> run;
};

// The checks of the kernels, in the order in which they build on one another.
std::span<const CheckPart> KernelCheckParts();

void CheckInstructions(CheckRun& run);
void CheckRows(CheckRun& run);
void CheckRope(CheckRun& run);
void CheckLinear(CheckRun& run);
void CheckLibrary(CheckRun& run);
void CheckGroupedLinear(CheckRun& run);
void CheckAttention(CheckRun& run);
void CheckExperts(CheckRun& run);
void CheckDummyWeights(CheckRun& run);

}  // namespace sluice::checks
