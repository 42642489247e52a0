#include "simulation/kernel_rates.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <vector>

#include <fmt/format.h>

namespace sluice {
namespace {

constexpr int64_t kMostSkinnyRows = 16;

std::string TextOf(const json::Value& row, std::string_view key) {
  const json::Value* value = row.Find(key);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

// Returns the data sheet's rate for the arithmetic of a product; 0 if the device has no such rate.
double SheetFlops(const std::string& shape, const DeviceProfile& device) {
  if (shape.find("fp8 x fp8") != std::string::npos) return device.fp8_flops;
  if (shape.find("nvfp4 x nvfp4") != std::string::npos) return device.fp4_flops;
  return shape.find(", bf16") != std::string::npos ? device.bf16_flops : 0;
}

// Returns the number of rows at the beginning of a product's shape, "8 x 10240 x 8192, ...".
int64_t RowsOf(const std::string& shape) {
  int64_t rows = 0;
  std::from_chars(shape.data(), shape.data() + shape.size(), rows);
  return rows;
}

// A part of a step, and its factor as determined by one row of the report.
struct Sample {
  StepPart part;
  double factor;
};
std::optional<Sample> SampleOf(const json::Value& row, const DeviceProfile& device) {
  const json::Value* achieved = row.Find("achieved");
  const double rate = achieved != nullptr && achieved->is_number() ? achieved->as_double() : 0;
  if (rate <= 0) return std::nullopt;
  const std::string part = TextOf(row, "part"), shape = TextOf(row, "shape");
  const auto factor = [&](StepPart of, double sheet, double unit) -> std::optional<Sample> {
    if (sheet <= 0) return std::nullopt;
    return Sample{of, sheet / (rate * unit)};
  };
  constexpr double kGiga = 1e9, kTera = 1e12;
  if (part == "skinny" && RowsOf(shape) >= 1 && RowsOf(shape) <= kMostSkinnyRows)
    return factor(StepPart::kWeights, device.bytes_per_second, kGiga);
  if (part == "decode") return factor(StepPart::kCache, device.bytes_per_second, kGiga);
  if (part == "large") return factor(StepPart::kProducts, SheetFlops(shape, device), kTera);
  if (part == "prefill") return factor(StepPart::kAttention, device.bf16_flops, kTera);
  return std::nullopt;
}

}  // namespace

bool IsKernelReport(const json::Value& report) {
  const json::Value* rows = report.Find("rows");
  return report.Find("device") != nullptr && rows != nullptr && rows->is_array();
}

Result<KernelFactors> FactorsOfKernels(const json::Value& report, const DeviceProfile& device,
                                       std::string_view place) {
  const auto bad = [&](std::string_view what) {
    return Fail(ErrorCode::kInvalidData, fmt::format("{}: {}", place, what));
  };
  if (!IsKernelReport(report)) return bad("expected a report of `sluice kernel-bench --json`");
  const json::Value* complete = report.Find("complete");
  if (complete == nullptr || !complete->is_bool() || !complete->as_bool())
    return bad("the run of kernel-bench was interrupted: run it again");
  std::map<StepPart, std::vector<double>> samples;
  for (const json::Value& row : report.Find("rows")->as_array()) {
    if (const auto sample = SampleOf(row, device)) samples[sample->part].push_back(sample->factor);
  }
  if (samples.empty()) {
    return bad(
        "no row contains a rate: expected the parts skinny, large, decode or prefill of "
        "kernel-bench");
  }
  KernelFactors found{.factors = device.factors, .determined = {}};
  for (auto& [part, factors] : samples) {
    std::ranges::sort(factors);
    found.factors[static_cast<size_t>(part)] = factors[factors.size() / 2];
    if (part == StepPart::kProducts) {
      // The weights' factor already covers products of few rows.
      found.factors[static_cast<size_t>(StepPart::kNarrow)] = 0;
    }
    found.determined += fmt::format("{}{} from {} rows", found.determined.empty() ? "" : ", ",
                                    StepPartName(part), factors.size());
  }
  return found;
}

}  // namespace sluice
