#include <chrono>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "cli/checked_device.h"
#include "cli/command.h"
#include "cli/gpus.h"
#include "cli/text_chunks.h"
#include "selftest/check_parts.h"

namespace sluice::cli {
namespace {

// Returns the bundled model: next to the program's folder, in the source tree of the build, or in
// the current folder.
std::filesystem::path BundledModel() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path bin = program.parent_path();
  for (const std::filesystem::path& root :
       {bin / "..", bin / ".." / ".." / "..", std::filesystem::path(".")}) {
    const std::filesystem::path folder = root / "models" / "abacus";
    if (std::filesystem::exists(folder / "config.json", error)) return folder.lexically_normal();
  }
  return {};
}

// Selects some of the model's held-out questions and answers.
selftest::DemoModel FindDemoModel(const options::Settings& settings, bool is_emulated) {
  constexpr int64_t kPromptTokens = 40;
  const int64_t prompts = is_emulated ? 3 : 16;
  selftest::DemoModel model;
  model.folder = settings.TextOr("checked-model");
  if (model.folder.empty()) model.folder = BundledModel();
  if (model.folder.empty()) {
    model.missing = "models/abacus was not found next to the program; give its path with --model";
    return model;
  }
  auto chunks = ReadTextChunks(model.folder / "heldout.jsonl", model.folder, kPromptTokens,
                               prompts * kPromptTokens);
  if (!chunks) {
    model.missing = chunks.error().message;
    return model;
  }
  model.prompts = *std::move(chunks);
  return model;
}

json::Value ReportOf(const checks::CheckRun& run, const DeviceInfo& info, double seconds,
                     bool is_complete) {
  int64_t passed = 0, failed = 0, skipped = 0;
  for (const checks::CheckRow& row : run.rows())
    ++(row.skipped ? skipped : row.passed ? passed : failed);
  json::Value report{json::Value::Object{}};
  report.Set("device", DeviceJson(info));
  report.Set("complete", is_complete);
  report.Set("passed", passed);
  report.Set("failed", failed);
  report.Set("skipped", skipped);
  report.Set("lost", run.lost());
  report.Set("seconds", seconds);
  report.Set("rows", run.ToJson());
  return report;
}

}  // namespace

Result<int> RunSelftest(const options::Settings& settings) {
  selftest::DemoModel model;
  const std::vector<checks::CheckPart> all = selftest::CheckParts(model);
  if (settings.Flag("list-parts")) {
    PrintParts(std::span(all));
    return 0;
  }
  ASSIGN_OR_RETURN(const auto parts, ChosenParts(settings, std::span(all)));
  ASSIGN_OR_RETURN(const auto device, OpenCheckedDevice(settings));
  model = FindDemoModel(settings, device.is_emulated());
  const DeviceInfo& info = device.device().info();
  fmt::print("device: {}\n", DeviceLine(info));
  const auto seconds = [begin = std::chrono::steady_clock::now()] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const checks::CheckRun* rows = nullptr;
  checks::CheckRun run(device, [&](const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
    WriteReportSoFar(settings, ReportOf(*rows, info, seconds(), false));
  });
  rows = &run;
  if (settings.Flag("small-shapes")) run.LeaveOutLargeShapes();
  for (const checks::CheckPart* part : parts) run.RunPart(*part);
  const json::Value report = ReportOf(run, info, seconds(), true);
  fmt::print("{} passed, {} failed, {} skipped in {:.1f} s on {}{}\n",
             report.Find("passed")->as_integer(), report.Find("failed")->as_integer(),
             report.Find("skipped")->as_integer(), report.Find("seconds")->as_double(), info.name,
             run.lost() ? "; the device was lost" : "");
  RETURN_IF_ERROR(WriteReport(settings, report));
  return run.passed() ? 0 : 1;
}

}  // namespace sluice::cli
