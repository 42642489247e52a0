#include "cli/checked_device.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "cli/gpus.h"
#include "cli/progress.h"
#include "cli/write_file.h"
#include "device/device_bytes.h"

namespace sluice::cli {

Result<checks::DeviceUnderTest> OpenCheckedDevice(const options::Settings& settings) {
  const std::string name = settings.TextOr("checked-device");
  const DeviceKind kind = name == "emulated" ? DeviceKind::kEmulated
                          : name == "hip"    ? DeviceKind::kHip
                                             : DeviceKind::kCuda;
  return checks::DeviceUnderTest::Open(kind, 0);
}

std::string DeviceLine(const DeviceInfo& info) {
  std::string text =
      fmt::format("{}, {}, {}", info.name, GenerationText(info), FormatBytes(info.total_bytes));
  if (info.kind == DeviceKind::kCuda) {
    text += fmt::format(", driver {}, runtime {}", CudaVersionText(info.driver_version),
                        CudaVersionText(info.runtime_version));
  } else if (info.kind == DeviceKind::kHip) {
    text += fmt::format(", HIP runtime {}", HipVersionText(info.runtime_version));
  }
  return text;
}

Status WriteReport(const options::Settings& settings, const json::Value& value) {
  const auto file = settings.Text("report-json");
  if (!file) return {};
  return WriteResultFile("json", *file, json::Write(value) + "\n");
}

void WriteReportSoFar(const options::Settings& settings, const json::Value& value) {
  namespace fs = std::filesystem;
  const auto file = settings.Text("report-json");
  std::error_code error;
  if (!file) return;
  // Does not follow links, because /dev/stdout is a link.
  const fs::file_type type = fs::symlink_status(*file, error).type();
  if (type != fs::file_type::not_found && type != fs::file_type::regular) return;
  const std::string unfinished = *file + ".partial";
  std::ofstream out(unfinished, std::ios::binary | std::ios::trunc);
  out << json::Write(value) << '\n';
  out.close();
  if (out) fs::rename(unfinished, *file, error);
  if (!out || error) fs::remove(unfinished, error);
}

}  // namespace sluice::cli
