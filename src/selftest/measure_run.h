// One run of measurements: how long kernels take on this device, beside what bounds them.
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

namespace sluice::selftest {

enum class MeasureUnit { kGigabytes, kTeraflops };  // a second

struct MeasureRow {
  std::string part, name, shape;
  MeasureUnit unit = MeasureUnit::kGigabytes;
  double seconds = 0;  // median of a launch
  double achieved = 0;
  double limit = 0;     // measured before; 0: none
  std::string message;  // why there is no figure
};

// What this device can do at most, measured by the part `limits`, which runs before any other.
struct MeasuredLimits {
  double copy_gigabytes = 0;  // read and written, of a large copy on the device
  double bf16_teraflops = 0;  // of the library's product of 8192^3
  double fp8_teraflops = 0;
  double nvf4_teraflops = 0;
};

struct MeasurePart;

// Thread safety: one thread at a time.
class MeasureRun {
 public:
  MeasureRun(const checks::DeviceUnderTest& device, std::function<void(const std::string&)> print)
      : device_(device), print_(std::move(print)) {}

  // Nothing runs once the device is lost.
  void RunPart(const MeasurePart& part);

  // Launches something; `turn` counts up with every call, so that launches can take turns with
  // data.
  using LaunchTurn = std::function<void(int64_t turn)>;
  struct Work {
    std::string name, shape;
    MeasureUnit unit = MeasureUnit::kGigabytes;
    double amount = 0;  // bytes or operations of a launch
    double limit = 0;   // in the unit; 0: none
  };
  // Warms up, times groups of launches by events and writes a row with the median. Returns what was
  // achieved, in the unit; 0 where it failed.
  double Measure(const Work& work, checks::CaseMemory& memory, const LaunchTurn& launch);
  // A row for work that was timed elsewhere.
  void Note(const Work& work, double seconds);
  // A row without a figure.
  void Skip(std::string name, std::string shape, std::string why);

  // Measurements run on the emulator too, in shapes that are small, to show that they run.
  int64_t Size(int64_t size, int64_t emulated) const {
    return device_.is_emulated() ? emulated : size;
  }

  // How many copies of `bytes` of data keep launches that take turns from finding it in the cache.
  int64_t CopiesBeyondCache(double bytes) const;

  const checks::DeviceUnderTest& device() const { return device_; }
  MeasuredLimits& limits() { return limits_; }
  bool lost() const { return lost_; }
  bool failed() const { return failed_; }
  json::Value ToJson() const;

 private:
  Result<double> MedianSeconds(const LaunchTurn& launch);
  void Add(MeasureRow row);

  const checks::DeviceUnderTest& device_;
  std::function<void(const std::string&)> print_;
  std::string part_;
  std::vector<MeasureRow> rows_;
  MeasuredLimits limits_;
  int64_t turn_ = 0;
  bool lost_ = false, failed_ = false;
};

// What `--part` names.
struct MeasurePart {
  std::string_view name;
  std::string_view summary;
  void (*run)(MeasureRun&);
};
// `limits` first.
std::span<const MeasurePart> MeasureParts();

void MeasureLimitsOfDevice(MeasureRun& run);
void MeasureSkinnyProducts(MeasureRun& run);
void MeasureLargeProducts(MeasureRun& run);
void MeasureDecodeAttention(MeasureRun& run);
void MeasurePrefillAttention(MeasureRun& run);
void MeasureRows(MeasureRun& run);

}  // namespace sluice::selftest
