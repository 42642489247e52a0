#include <fmt/format.h>

#include "cli/checked_device.h"
#include "cli/command.h"
#include "cli/gpus.h"
#include "selftest/measure_run.h"

namespace sluice::cli {

Result<int> RunKernelBench(const options::Settings& settings) {
  if (settings.Flag("list-parts")) {
    PrintParts(selftest::MeasureParts());
    return 0;
  }
  ASSIGN_OR_RETURN(auto parts, ChosenParts(settings, selftest::MeasureParts()));
  if (settings.TextOr("checked-device") == "emulated") {
    return Fail(ErrorCode::kUnsupported,
                "the emulator's speed says nothing: run kernel-bench with --device cuda", "device");
  }
  ASSIGN_OR_RETURN(const auto device, OpenCheckedDevice(settings));
  fmt::print("device: {}\n", DeviceLine(device.device().info()));
  selftest::MeasureRun run(device, [](const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  });
  // The other parts compare with what this one finds.
  const selftest::MeasurePart* limits = &selftest::MeasureParts().front();
  if (parts.front() != limits) parts.insert(parts.begin(), limits);
  for (const selftest::MeasurePart* part : parts) run.RunPart(*part);
  json::Value report{json::Value::Object{}};
  report.Set("device", DeviceJson(device.device().info()));
  report.Set("lost", run.lost());
  report.Set("rows", run.ToJson());
  RETURN_IF_ERROR(WriteReport(settings, report));
  return run.failed() || run.lost() ? 1 : 0;
}

}  // namespace sluice::cli
