#include <fmt/format.h>

#include "cli/checked_device.h"
#include "cli/command.h"
#include "cli/gpus.h"
#include "selftest/measure_run.h"

namespace sluice::cli {
namespace {

json::Value ReportOf(const selftest::MeasureRun& run, const DeviceInfo& info, bool is_complete) {
  json::Value report{json::Value::Object{}};
  report.Set("device", DeviceJson(info));
  report.Set("complete", is_complete);
  report.Set("lost", run.lost());
  report.Set("rows", run.ToJson());
  return report;
}

}  // namespace

Result<int> RunKernelBench(const options::Settings& settings) {
  if (settings.Flag("list-parts")) {
    PrintParts(selftest::MeasureParts());
    return 0;
  }
  ASSIGN_OR_RETURN(auto parts, ChosenParts(settings, selftest::MeasureParts()));
  ASSIGN_OR_RETURN(const auto device, OpenCheckedDevice(settings));
  const DeviceInfo& info = device.device().info();
  if (device.is_emulated()) {
    const char* const todo = info.kind == DeviceKind::kHip
                                 ? "this HIP runtime is a stand-in; unset SLUICE_HIP_RUNTIME"
                                 : "use --device cuda or hip";
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("the emulator's speed is meaningless: run kernel-bench where a GPU is ({})",
                    todo),
        "device");
  }
  fmt::print("device: {}\n", DeviceLine(info));
  const selftest::MeasureRun* rows = nullptr;
  selftest::MeasureRun run(device, [&](const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
    WriteReportSoFar(settings, ReportOf(*rows, info, false));
  });
  rows = &run;
  // Always runs the first part, because the others are compared with its results.
  const selftest::MeasurePart* limits = &selftest::MeasureParts().front();
  if (parts.front() != limits) parts.insert(parts.begin(), limits);
  for (const selftest::MeasurePart* part : parts) run.RunPart(*part);
  RETURN_IF_ERROR(WriteReport(settings, ReportOf(run, info, true)));
  return run.failed() || run.lost() ? 1 : 0;
}

}  // namespace sluice::cli
