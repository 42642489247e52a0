#include "simulation/measurements.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json_fields.h"
#include "cache/block_counts.h"

namespace sluice {
namespace {

constexpr uint64_t kMostFileBytes = uint64_t{16} << 20;
constexpr int kBlockSize = 16;
// Memory for activations, graphs and the driver's context.
constexpr double kOtherBytes = 4e9;

std::vector<std::string_view> CellsOf(std::string_view line) {
  std::vector<std::string_view> cells;
  while (true) {
    const size_t comma = std::min(line.find(','), line.size());
    cells.push_back(line.substr(0, comma));
    if (comma == line.size()) return cells;
    line.remove_prefix(comma + 1);
  }
}

bool ReadNumber(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value) &&
         value >= 0;
}

Status ReadLine(std::string_view line, std::span<const std::string_view> names,
                std::string_view place, Measurement& row) {
  const std::vector<std::string_view> cells = CellsOf(line);
  if (cells.size() != names.size()) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("{}: expected {} cells, found {}", place, names.size(), cells.size()));
  }
  double tensor = 1, concurrency = 1, requests = 0, ttft = 0, tpot = 0;
  std::string statistic = "mean";
  const std::map<std::string_view, std::string*> texts = {{"set", &row.set},
                                                          {"statistic", &statistic},
                                                          {"source", &row.source},
                                                          {"device", &row.device},
                                                          {"model", &row.model}};
  const std::map<std::string_view, double*> numbers = {{"tp", &tensor},
                                                       {"input", &row.input},
                                                       {"output", &row.output},
                                                       {"spread", &row.spread},
                                                       {"concurrency", &concurrency},
                                                       {"requests", &requests},
                                                       {"ttft_ms", &ttft},
                                                       {"tpot_ms", &tpot}};
  for (size_t i = 0; i < names.size(); ++i) {
    if (const auto text = texts.find(names[i]); text != texts.end()) {
      *text->second = std::string(cells[i]);
    } else if (const auto number = numbers.find(names[i]);
               number == numbers.end() || !ReadNumber(cells[i], *number->second)) {
      return Fail(
          ErrorCode::kInvalidData,
          number == numbers.end()
              ? fmt::format("{}: the column \"{}\" is not known", place, names[i])
              : fmt::format("{}: {}: expected a number, found \"{}\"", place, names[i], cells[i]));
    }
  }
  row.tensor_size = static_cast<int>(tensor);
  row.concurrency = static_cast<int64_t>(concurrency);
  row.num_requests = static_cast<int64_t>(requests);
  row.ttft = ttft / 1e3;
  row.tpot = tpot / 1e3;
  row.is_median = statistic == "median";
  if (!row.is_median && statistic != "mean") {
    return Fail(
        ErrorCode::kInvalidData,
        fmt::format("{}: statistic: expected mean or median, found \"{}\"", place, statistic));
  }
  if (row.tensor_size >= 1 && row.concurrency >= 1 && row.input >= 1 && row.output >= 2 &&
      row.spread < 1 && row.ttft > 0 && row.tpot > 0)
    return {};
  return Fail(ErrorCode::kInvalidData,
              fmt::format("{}: expected tp, concurrency, input, ttft_ms and tpot_ms above 0, an "
                          "output of at least 2 tokens and a spread below 1",
                          place));
}

// Returns a number in [0, 1) that depends only on `index`; evenly distributed.
double EvenAt(uint64_t index) {
  uint64_t value = (index + 1) * 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  return static_cast<double>((value ^ (value >> 31)) >> 11) * 0x1p-53;
}

// One equation of the fit: the sum of amounts times factors should equal `target`.
struct Equation {
  StepParts amounts{};
  double target = 0;
  double weight = 1;
};

// Lower bounds of the factors: no device is faster than its data sheet.
constexpr StepParts kLeast = {1, 1, 1, 0, 1, 0, 0, 0, 1, 0, 0};

// Minimizes the squared relative errors, with a slight pull towards `prior`, by coordinate descent.
StepParts Solve(std::span<const Equation> equations, const StepParts& prior) {
  constexpr double kPull = 1e-3;
  constexpr int kSweeps = 4000;
  std::array<std::array<double, kNumStepParts>, kNumStepParts> products{};
  StepParts targets{}, scales{};
  for (size_t i = 0; i < kNumStepParts; ++i) scales[i] = prior[i] > 0 ? prior[i] : 1e-9;
  for (const Equation& equation : equations) {
    StepParts row;
    for (size_t i = 0; i < kNumStepParts; ++i)
      row[i] = equation.amounts[i] * scales[i] / equation.target;
    for (size_t i = 0; i < kNumStepParts; ++i) {
      targets[i] += equation.weight * row[i];
      for (size_t j = 0; j < kNumStepParts; ++j)
        products[i][j] += equation.weight * row[i] * row[j];
    }
  }
  StepParts solution;
  solution.fill(1);
  for (size_t i = 0; i < kNumStepParts; ++i) {
    products[i][i] += kPull;
    targets[i] += kPull;
  }
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (size_t i = 0; i < kNumStepParts; ++i) {
      double rest = targets[i];
      for (size_t j = 0; j < kNumStepParts; ++j) rest -= j == i ? 0 : products[i][j] * solution[j];
      solution[i] = std::max(kLeast[i] / scales[i], rest / products[i][i]);
    }
  }
  for (size_t i = 0; i < kNumStepParts; ++i) solution[i] *= scales[i];
  return solution;
}

// Returns the mean of a figure and of its parts over all requests. If `is_median`, over the 5 % of
// them around the median.
double Typical(std::vector<ReplayedRequest>& requests, bool is_median,
               double ReplayedRequest::*figure, StepParts ReplayedRequest::*parts,
               StepParts& amounts) {
  std::ranges::sort(requests, {}, figure);
  const size_t size = requests.size(), width = is_median ? (size + 19) / 20 : size;
  const size_t begin = is_median && size > width ? (size - width) / 2 : 0;
  double sum = 0;
  for (size_t i = begin; i < begin + width; ++i) {
    sum += requests[i].*figure;
    for (size_t part = 0; part < kNumStepParts; ++part)
      amounts[part] += (requests[i].*parts)[part] / static_cast<double>(width);
  }
  return sum / static_cast<double>(width);
}

}  // namespace

Result<std::vector<Measurement>> ReadMeasurements(const std::filesystem::path& file) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMostFileBytes));
  std::vector<Measurement> rows;
  std::vector<std::string_view> names;
  int number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    ++number;
    if (line.empty() || line.front() == '#') continue;
    if (names.empty()) {
      names = CellsOf(line);
      continue;
    }
    RETURN_IF_ERROR(
        ReadLine(line, names, fmt::format("{}:{}", file.string(), number), rows.emplace_back()));
  }
  if (rows.empty())
    return Fail(ErrorCode::kInvalidData, fmt::format("{}: no rows of figures", file.string()));
  return rows;
}

Result<Measurement> MeasurementOf(const json::Value& result, std::string_view place) {
  if (!result.is_object()) {
    return Fail(
        ErrorCode::kInvalidData,
        fmt::format("{}: expected a JSON object, as bench serve --save-result writes it", place));
  }
  const JsonFields fields(result, fmt::format("{}: ", place));
  const auto number = [&](std::string_view name) -> Result<double> {
    ASSIGN_OR_RETURN(const std::optional<double> value, fields.Number(name, 1e-9, 1e15));
    if (!value) return fields.Missing(name);
    return *value;
  };
  Measurement row;
  row.source = std::string(place);
  ASSIGN_OR_RETURN(const double completed, number("completed"));
  ASSIGN_OR_RETURN(const double input, number("total_input_tokens"));
  ASSIGN_OR_RETURN(const double output, number("total_output_tokens"));
  ASSIGN_OR_RETURN(const double concurrency, number("max_concurrency"));
  ASSIGN_OR_RETURN(const double ttft, number("mean_ttft_ms"));
  ASSIGN_OR_RETURN(const double tpot, number("mean_tpot_ms"));
  row.input = input / completed;
  row.output = output / completed;
  row.concurrency = std::max<int64_t>(1, std::llround(concurrency));
  row.num_requests = std::max<int64_t>(1, std::llround(completed));
  row.ttft = ttft / 1e3;
  row.tpot = tpot / 1e3;
  if (row.output < 2) {
    return Fail(
        ErrorCode::kInvalidData,
        fmt::format("{}: answers have {:.1f} tokens: expected at least 2", place, row.output));
  }
  return row;
}

Result<MeasuredRun> RunOf(const Measurement& measurement, const ModelConfig& model,
                          const DeviceProfile& device, double utilization) {
  MeasuredRun run;
  run.measured = measurement;
  ModelOptions options;
  options.kv_type = ElementType::kF8E4M3;
  options.block_size = kBlockSize;
  ASSIGN_OR_RETURN(run.costs, StepCostsOf(model, options, measurement.tensor_size, 1));
  const StageCosts& stage = run.costs.stages.front();
  double weights = stage.head.bytes + stage.num_experts * stage.expert_bytes;
  for (const StageCosts::Products& dense : stage.dense) weights += dense.bytes;
  // The embedding table is as large as the head.
  if (!model.tie_word_embeddings) weights += stage.head.bytes;
  double token_bytes = 0;
  for (const StageCosts::Attention& layers : stage.attention) token_bytes += layers.position_bytes;
  const double room = utilization * static_cast<double>(device.memory_bytes - device.system_bytes) -
                      weights - kOtherBytes;
  if (room <= 0) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("{} with tp {}: {:.0f} GB of weights do not fit into {:.0f} GB",
                            device.name, measurement.tensor_size, weights / 1e9,
                            static_cast<double>(device.memory_bytes) / 1e9));
  }
  run.options.num_blocks = static_cast<int64_t>(room / (token_bytes * kBlockSize));
  run.options.prefix_caching = false;
  run.options.concurrency = measurement.concurrency;
  SchedulerLimits& limits = run.options.limits;
  limits.block_size = kBlockSize;
  limits.max_num_seqs = 1024;
  limits.max_num_batched_tokens = 8192;
  limits.max_prompt_logit_rows = 1;
  limits.chunked_prefill = true;
  const int64_t count =
      measurement.num_requests > 0 ? measurement.num_requests : 10 * measurement.concurrency;
  for (int64_t i = 0; i < count; ++i) {
    const auto length = [&](double nominal, uint64_t salt) {
      const double factor = 1 - measurement.spread * EvenAt(2 * static_cast<uint64_t>(i) + salt);
      return std::max<int64_t>(1, std::llround(nominal * factor));
    };
    run.requests.push_back({.input = length(measurement.input, 0),
                            .output = std::max<int64_t>(2, length(measurement.output, 1))});
  }
  return run;
}

Result<Prediction> Predict(const MeasuredRun& run, const DeviceProfile& device) {
  const StepClock clock(device, run.costs);
  ASSIGN_OR_RETURN(ReplayResult replayed, Replay(clock, run.options, run.requests));
  Prediction predicted;
  predicted.output_per_second = replayed.output_tokens_per_second();
  predicted.ttft = Typical(replayed.requests, run.measured.is_median, &ReplayedRequest::ttft,
                           &ReplayedRequest::ttft_parts, predicted.ttft_parts);
  predicted.tpot = Typical(replayed.requests, run.measured.is_median, &ReplayedRequest::tpot,
                           &ReplayedRequest::tpot_parts, predicted.tpot_parts);
  return predicted;
}

double OutputRate(const Measurement& run, double ttft, double tpot) {
  const double output = run.output * (1 - run.spread / 2);
  return static_cast<double>(run.concurrency) * output / (ttft + (output - 1) * tpot);
}

Result<StepParts> FitFactors(std::span<const MeasuredRun> runs, const DeviceProfile& device,
                             int rounds) {
  constexpr double kTtftWeight = 0.2;
  DeviceProfile fitted = device;
  for (int round = 0; round < rounds; ++round) {
    std::vector<Equation> equations;
    for (const MeasuredRun& run : runs) {
      ASSIGN_OR_RETURN(const Prediction predicted, Predict(run, fitted));
      equations.push_back({predicted.tpot_parts, run.measured.tpot, 1});
      equations.push_back({predicted.ttft_parts, run.measured.ttft, kTtftWeight});
    }
    fitted.factors = Solve(equations, device.factors);
  }
  return fitted.factors;
}

}  // namespace sluice
