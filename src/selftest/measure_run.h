// Runs measurements: the time of kernels on this device, relative to its limits.
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

enum class MeasureUnit { kGigabytes, kTeraflops };  // units per second

struct MeasureRow {
  std::string part, name, shape;
  MeasureUnit unit = MeasureUnit::kGigabytes;
  double seconds = 0;  // median time per launch
  double achieved = 0;
  double limit = 0;     // limit that was measured earlier; 0: none
  std::string message;  // why there is no result
};

// The device's limits. The part `limits`, which runs first, measures them.
struct MeasuredLimits {
  double copy_gigabytes = 0;  // bytes read plus bytes written by a large copy on the device
  double bf16_teraflops = 0;  // speed of the library's product of 8192^3
  double fp8_teraflops = 0;
  double nvf4_teraflops = 0;
};

struct MeasurePart;

// Thread safety: one thread at a time.
class MeasureRun {
 public:
  MeasureRun(const checks::DeviceUnderTest& device, std::function<void(const std::string&)> print)
      : device_(device), print_(std::move(print)) {}

  // Does nothing if the device is lost.
  void RunPart(const MeasurePart& part);

  // Launches a kernel. `turn` increases with every call, so that launches can cycle through
  // different data.
  using LaunchTurn = std::function<void(int64_t turn)>;
  struct Work {
    std::string name, shape;
    MeasureUnit unit = MeasureUnit::kGigabytes;
    double amount = 0;  // bytes or operations per launch
    double limit = 0;   // in `unit`; 0: none
  };
  // Warms up, times groups of launches by events and writes a row with the median. Returns the
  // achieved value in `unit`; 0 on failure.
  double Measure(const Work& work, checks::CaseMemory& memory, const LaunchTurn& launch);
  // Adds a row for work that was timed elsewhere.
  void Note(const Work& work, double seconds);
  // Adds a row without a result.
  void Skip(std::string name, std::string shape, std::string why);

  // Returns `size`, or `emulated` on the emulator, where small shapes only test that measurements
  // work.
  int64_t Size(int64_t size, int64_t emulated) const {
    return device_.is_emulated() ? emulated : size;
  }

  // Returns the number of copies, of `bytes` bytes each, through which launches must cycle so that
  // no launch finds its copy in the cache.
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

// A part of the measurements, which `--part` selects.
struct MeasurePart {
  std::string_view name;
  std::string_view summary;
  void (*run)(MeasureRun&);
};
// Returns all parts; `limits` is the first.
std::span<const MeasurePart> MeasureParts();

void MeasureLimitsOfDevice(MeasureRun& run);
void MeasureSkinnyProducts(MeasureRun& run);
void MeasureLargeProducts(MeasureRun& run);
void MeasureDecodeAttention(MeasureRun& run);
void MeasurePrefillAttention(MeasureRun& run);
void MeasureRows(MeasureRun& run);

}  // namespace sluice::selftest
