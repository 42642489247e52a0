#include "selftest/measure_run.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace sluice::selftest {

using checks::CaseMemory;

namespace {

constexpr int kWarmUps = 3;  // none on the emulator
constexpr int kGroups = 7;
constexpr double kGroupSeconds = 0.004;  // duration of the launches between two events
constexpr double kMaxSeconds = 1;        // maximum for all groups of a row

const char* UnitName(MeasureUnit unit) {
  return unit == MeasureUnit::kGigabytes ? "GB/s" : "TFLOP/s";
}

std::string RowText(const MeasureRow& row) {
  std::string text = fmt::format("{:<24} {:<40} ", row.name, row.shape);
  if (!row.message.empty()) return text + row.message;
  text +=
      fmt::format("{:>10.1f} {:>9.1f} {:<7}", row.seconds * 1e6, row.achieved, UnitName(row.unit));
  if (row.limit > 0)
    text += fmt::format(" {:>9.1f} {:>6.1f} %", row.limit, 100 * row.achieved / row.limit);
  return text;
}

}  // namespace

void MeasureRun::RunPart(const MeasurePart& part) {
  if (lost_) return;
  part_ = part.name;
  part.run(*this);
}

void MeasureRun::Add(MeasureRow row) {
  row.part = part_;
  rows_.push_back(std::move(row));
  if (!print_) return;
  if (rows_.size() == 1) {
    print_(fmt::format("{:<24} {:<40} {:>10} {:>17} {:>9} {:>8}", "kernel", "shape", "us",
                       "measured", "limit", "reached"));
  }
  print_(RowText(rows_.back()));
}

void MeasureRun::Note(const Work& work, double seconds) {
  MeasureRow row;
  row.name = work.name;
  row.shape = work.shape;
  row.unit = work.unit;
  row.limit = work.limit;
  row.seconds = seconds;
  const double scale = work.unit == MeasureUnit::kGigabytes ? 1e9 : 1e12;
  row.achieved = seconds > 0 ? work.amount / seconds / scale : 0;
  Add(std::move(row));
}

void MeasureRun::Skip(std::string name, std::string shape, std::string why) {
  MeasureRow row;
  row.name = std::move(name);
  row.shape = std::move(shape);
  row.message = std::move(why);
  Add(std::move(row));
}

int64_t MeasureRun::CopiesBeyondCache(double bytes) const {
  if (device_.is_emulated()) return 2;
  const auto cache = static_cast<double>(device_.device().info().l2_bytes);
  return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(3 * cache / std::max(bytes, 1.0))), 1,
                             64);
}

Result<double> MeasureRun::MedianSeconds(const LaunchTurn& launch) {
  DeviceStream& stream = device_.stream();
  ASSIGN_OR_RETURN(const auto begin, device_.device().CreateEvent());
  ASSIGN_OR_RETURN(const auto end, device_.device().CreateEvent());
  const auto time = [&](int64_t launches) -> Result<double> {
    stream.Record(*begin);
    for (int64_t i = 0; i < launches; ++i) launch(turn_++);
    stream.Record(*end);
    RETURN_IF_ERROR(stream.Synchronize());
    ASSIGN_OR_RETURN(const double seconds, end->SecondsSince(*begin));
    return seconds / static_cast<double>(launches);
  };
  if (device_.is_emulated()) return time(2);
  double once = 0;
  for (int i = 0; i < kWarmUps; ++i) {
    ASSIGN_OR_RETURN(once, time(1));
  }
  const auto launches =
      std::clamp<int64_t>(static_cast<int64_t>(kGroupSeconds / std::max(once, 1e-7)), 1, 2000);
  const int groups = std::clamp(
      static_cast<int>(kMaxSeconds / std::max(once * static_cast<double>(launches), 1e-7)), 1,
      kGroups);
  std::vector<double> seconds;
  for (int i = 0; i < groups; ++i) {
    ASSIGN_OR_RETURN(const double group, time(launches));
    seconds.push_back(group);
  }
  std::nth_element(seconds.begin(), seconds.begin() + groups / 2, seconds.end());
  return seconds[static_cast<size_t>(groups / 2)];
}

double MeasureRun::Measure(const Work& work, CaseMemory& memory, const LaunchTurn& launch) {
  if (lost_) return 0;
  MeasureRow row;
  row.name = work.name;
  row.shape = work.shape;
  row.unit = work.unit;
  row.limit = work.limit;
  Result<double> seconds =
      memory.ok() ? MedianSeconds(launch) : tl::unexpected<Error>(memory.status().error());
  if (!seconds) {
    failed_ = true;
    lost_ = device_.is_lost();
    row.message = "failed: " + seconds.error().message +
                  (lost_ ? "; the device is lost, nothing more can be measured" : "");
  } else {
    row.seconds = *seconds;
    const double scale = work.unit == MeasureUnit::kGigabytes ? 1e9 : 1e12;
    row.achieved = *seconds > 0 ? work.amount / *seconds / scale : 0;
  }
  const double achieved = row.achieved;
  Add(std::move(row));
  return achieved;
}

json::Value MeasureRun::ToJson() const {
  json::Value::Array rows;
  for (const MeasureRow& row : rows_) {
    json::Value value{json::Value::Object{}};
    value.Set("part", row.part);
    value.Set("kernel", row.name);
    value.Set("shape", row.shape);
    value.Set("microseconds", row.seconds * 1e6);
    value.Set("achieved", row.achieved);
    value.Set("unit", UnitName(row.unit));
    value.Set("limit", row.limit > 0 ? json::Value(row.limit) : json::Value());
    value.Set("message", row.message);
    rows.push_back(std::move(value));
  }
  return json::Value(std::move(rows));
}

std::span<const MeasurePart> MeasureParts() {
  static constexpr MeasurePart kParts[] = {
      {"limits", "bandwidth of copies, and the tensor cores' peak by the library's products",
       MeasureLimitsOfDevice},
      {"skinny", "products of 1 to 64 rows, against the bandwidth", MeasureSkinnyProducts},
      {"large", "products of 1024 and 8192 rows, against the peak", MeasureLargeProducts},
      {"decode", "attention of one token a sequence, against the bandwidth",
       MeasureDecodeAttention},
      {"prefill", "attention of prompts, against the peak", MeasurePrefillAttention},
      {"rows", "norms, fusions and draws, against the bandwidth", MeasureRows},
  };
  return kParts;
}

}  // namespace sluice::selftest
