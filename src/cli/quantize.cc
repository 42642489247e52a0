#include <fmt/format.h>

#include "base/json.h"
#include "cli/command.h"
#include "cli/configs.h"
#include "cli/progress.h"
#include "cli/text_chunks.h"
#include "hardware/topology.h"
#include "quantize/quantize_checkpoint.h"

namespace sluice::cli {
namespace {

tl::unexpected<Error> Usage(std::string message, std::string option) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message), std::move(option));
}

std::string ReportText(const QuantizeReport& report, const std::string& out) {
  return fmt::format(
      "{}: {} linear layers quantized, {} unchanged; {} from {} ({:.1f} %); the weights changed by "
      "{:.2f} % (rms)\n",
      out, report.quantized_modules, report.plain_modules, FormatBytes(report.written_bytes),
      FormatBytes(report.source_bytes),
      100.0 * static_cast<double>(report.written_bytes) / static_cast<double>(report.source_bytes),
      100 * report.relative_error);
}

json::Value ReportJson(const QuantizeReport& report) {
  json::Value value{json::Value::Object{}};
  value.Set("quantized_modules", report.quantized_modules);
  value.Set("plain_modules", report.plain_modules);
  value.Set("source_bytes", report.source_bytes);
  value.Set("written_bytes", report.written_bytes);
  value.Set("relative_error", report.relative_error);
  return value;
}

}  // namespace

Result<int> RunQuantize(const options::Settings& settings) {
  const auto& words = settings.positionals();
  const bool by_flag = settings.Given("model");
  if (words.size() != (by_flag ? 1u : 2u))
    return Usage("expected a model and the folder to write: sluice quantize MODEL FOLDER --to ...",
                 "output");
  ASSIGN_OR_RETURN(const ModelArgument model,
                   ResolveModelArgument(settings, by_flag ? settings.TextOr("model") : words[0]));
  const std::string out = words.back();
  if (!settings.Given("to"))
    return Usage(fmt::format("--to is missing; known layouts are {}", QuantizeTargetNames()), "to");
  QuantizeOptions options;
  options.target = FindQuantizeTarget(settings.TextOr("to"));
  options.fp8_kv_cache = settings.TextOr("quantize-kv-cache") == "fp8";
  options.exclude = settings.List("exclude");
  options.input_percentile = settings.Number("input-percentile").value_or(100);
  options.max_file_bytes = *settings.Integer("shard-size");
  if (settings.TextOr("group-scales") == "mse") {
    if (options.target->format.type != ElementType::kF4E2M1) {
      return Usage(
          fmt::format("--group-scales mse is for groups of 4-bit weights; --to {} has none",
                      options.target->name),
          "group-scales");
    }
    options.group_scales = GroupScales::kLeastSquares;
  }
  if (options.input_percentile < 100 && !options.target->needs_calibration()) {
    return Usage(fmt::format("--input-percentile is for stored input scales; --to {} has none",
                             options.target->name),
                 "input-percentile");
  }
  if (const auto file = settings.Text("calibrate")) {
    if (!options.target->needs_calibration() && !options.fp8_kv_cache) {
      return Usage(fmt::format("--calibrate changes nothing: --to {} without --kv-cache fp8 stores "
                               "no scales of inputs, keys or values",
                               options.target->name),
                   "calibrate");
    }
    ASSIGN_OR_RETURN(options.calibration,
                     ReadTextChunks(*file, model.folder, *settings.Integer("chunk-tokens"),
                                    *settings.Integer("calibrate-tokens")));
  }
  const int64_t threads = settings.Integer("threads").value_or(0);
  ThreadPool pool(threads > 0 ? static_cast<int>(threads) : DetectTopology().DefaultThreads());
  ProgressBar bar("Quantizing");
  const auto report =
      QuantizeCheckpoint(pool, model.folder, out, options,
                         [&](int64_t done, int64_t total) { bar.Update(done, total); });
  bar.Finish();
  if (!report) return tl::unexpected<Error>(report.error());
  fmt::print("{}", settings.Flag("diff-json") ? json::Write(ReportJson(*report)) + "\n"
                                              : ReportText(*report, out));
  return 0;
}

}  // namespace sluice::cli
