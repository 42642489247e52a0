// `sluice fit`: makes the description of a device from measured runs.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json_file.h"
#include "cli/command.h"
#include "cli/configs.h"
#include "cli/simulation_settings.h"
#include "cli/write_file.h"
#include "models/model_config.h"
#include "simulation/kernel_rates.h"
#include "simulation/measurements.h"

namespace sluice::cli {
namespace {

tl::unexpected<Error> BadFit(std::string_view option, std::string message) {
  return Fail(ErrorCode::kInvalidArgument, fmt::format("--{}: {}", option, message),
              std::string(option));
}

// From a table: returns the device's rows whose `set` is "fit". From another file: returns the
// result of a bench run.
Result<std::vector<Measurement>> RowsOf(const std::filesystem::path& file,
                                        const DeviceProfile& device,
                                        const options::Settings& settings) {
  std::vector<Measurement> rows;
  if (file.extension() == ".csv") {
    ASSIGN_OR_RETURN(std::vector<Measurement> all, ReadMeasurements(file));
    for (Measurement& row : all) {
      if (row.set != "fit" || row.device != device.name) continue;
      row.model = (file.parent_path() / row.model).string();
      rows.push_back(std::move(row));
    }
    return rows;
  }
  ASSIGN_OR_RETURN(const json::Value result, ReadJsonObject(file));
  ASSIGN_OR_RETURN(Measurement row, MeasurementOf(result, file.string()));
  row.device = device.name;
  row.model = settings.TextOr("fit-model");
  row.tensor_size = static_cast<int>(*settings.Integer("fit-tensor-parallel-size"));
  if (row.model.empty()) {
    return BadFit("model", fmt::format("{} does not say which model was measured: give its folder",
                                       file.string()));
  }
  rows.push_back(std::move(row));
  return rows;
}

// Uses the factors in `file` if it is a report of kernel-bench. Server runs are fitted after all
// such reports, starting from these factors.
Result<bool> UseKernelReport(const std::filesystem::path& file, DeviceProfile& device,
                             std::vector<std::string>& sources) {
  if (file.extension() == ".csv") return false;
  ASSIGN_OR_RETURN(const json::Value report, ReadJsonObject(file));
  if (!IsKernelReport(report)) return false;
  ASSIGN_OR_RETURN(const KernelFactors found, FactorsOfKernels(report, device, file.string()));
  device.factors = found.factors;
  sources.push_back("kernel-bench: " + found.determined);
  fmt::print(stderr, "{}: {}\n", file.string(), found.determined);
  return true;
}

}  // namespace

Result<int> RunFit(const options::Settings& settings) {
  if (settings.positionals().empty())
    return BadFit("like", "give files: results of bench serve, or tables of measured rows (.csv)");
  if (settings.TextOr("like").empty())
    return BadFit("like", "name the measured device, or give a .yaml file that describes it");
  auto like = DevicesOf(settings.TextOr("like"));
  if (!like) return tl::unexpected(std::move(like).error().In("--like"));
  DeviceProfile device = std::move(like->device);
  std::map<std::string, ModelConfig> models;
  std::vector<MeasuredRun> runs;
  std::vector<std::string> sources;
  for (const std::string& file : settings.positionals()) {
    ASSIGN_OR_RETURN(const bool is_kernels, UseKernelReport(file, device, sources));
    if (is_kernels) continue;
    ASSIGN_OR_RETURN(const std::vector<Measurement> rows, RowsOf(file, device, settings));
    for (const Measurement& row : rows) {
      if (!models.contains(row.model)) {
        ASSIGN_OR_RETURN(ModelConfig model, LoadModelConfig(row.model));
        models.emplace(row.model, std::move(model));
      }
      ASSIGN_OR_RETURN(MeasuredRun run, RunOf(row, models.at(row.model), device));
      runs.push_back(std::move(run));
    }
  }
  if (runs.empty() && sources.empty()) {
    return BadFit("like", fmt::format("the files contain no rows of {} to fit", device.name));
  }
  if (!runs.empty()) {
    ASSIGN_OR_RETURN(device.factors, FitFactors(runs, device));
    sources.push_back(fmt::format("{} measured rows", runs.size()));
  }
  std::vector<double> errors;
  for (const MeasuredRun& run : runs) {
    ASSIGN_OR_RETURN(const Prediction predicted, Predict(run, device));
    errors.push_back(std::abs(predicted.tpot / run.measured.tpot - 1));
    fmt::print(stderr,
               "{}: tp {}, {:g}/{:g} tokens, {} at a time: ttft {:.0f} ms for {:.0f}, tpot {:.2f} "
               "ms for {:.2f}\n",
               run.measured.source, run.measured.tensor_size, run.measured.input,
               run.measured.output, run.measured.concurrency, 1e3 * predicted.ttft,
               1e3 * run.measured.ttft, 1e3 * predicted.tpot, 1e3 * run.measured.tpot);
  }
  std::ranges::sort(errors);
  // A good fit does not guarantee good predictions of other runs, so the stated error is at least 5
  // %.
  if (!errors.empty()) device.error = std::max(0.05, 2 * errors[errors.size() / 2]);
  device.source = fmt::format("sluice fit, {}", fmt::join(sources, "; "));
  device.name = settings.TextOr("fit-name", device.name);
  const std::string text = ToYaml(device);
  const std::string output = settings.TextOr("fit-output");
  if (output.empty()) {
    fmt::print("{}", text);
    return 0;
  }
  RETURN_IF_ERROR(WriteResultFile("output", output, text));
  return 0;
}

}  // namespace sluice::cli
