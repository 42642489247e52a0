// Shared by `selftest` and `kernel-bench`: the device, the choice of parts, the report file.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "base/result.h"
#include "kernels/cuda/checks/checked_device.h"
#include "options/settings.h"

namespace sluice::cli {

Result<checks::DeviceUnderTest> OpenCheckedDevice(const options::Settings& settings);

// Returns "NVIDIA H200, compute capability 9.0, 139.8 GiB, driver 13.0, runtime 13.0".
std::string DeviceLine(const DeviceInfo& info);

// Writes `value` to the file of --json, if given.
Status WriteReport(const options::Settings& settings, const json::Value& value);

// Replaces the file of --json by `value`, the results so far, so that they survive an interrupt.
// Does nothing if --json is not a regular file: a pipe, for example, only gets the complete report.
// Ignores errors, which WriteReport will return.
void WriteReportSoFar(const options::Settings& settings, const json::Value& value);

// Returns the parts that --part names, in the order of `all`; all of them if it is not given.
// kInvalidArgument for an unknown name.
template <typename Part>
Result<std::vector<const Part*>> ChosenParts(const options::Settings& settings,
                                             std::span<const Part> all) {
  const std::vector<std::string> names = settings.List("part");
  std::vector<const Part*> chosen;
  std::string known;
  for (const Part& part : all) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", part.name);
    bool is_named = names.empty();
    for (const std::string& name : names) is_named = is_named || name == part.name;
    if (is_named) chosen.push_back(&part);
  }
  for (const std::string& name : names) {
    bool is_known = false;
    for (const Part& part : all) is_known = is_known || name == part.name;
    if (!is_known) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("--part: expected one of {}; got \"{}\"", known, name), "part");
    }
  }
  return chosen;
}

// Prints the names and summaries of all parts.
template <typename Part>
void PrintParts(std::span<const Part> all) {
  for (const Part& part : all) fmt::print("{:<16} {}\n", part.name, part.summary);
}

}  // namespace sluice::cli
