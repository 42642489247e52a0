// Measured runs of servers: tables of published rows, and results of `sluice bench serve`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "models/model_config.h"
#include "simulation/device_profile.h"
#include "simulation/replay.h"
#include "simulation/step_clock.h"

namespace sluice {

// A closed loop: `concurrency` requests at a time, each with a prompt of `input` and an answer of
// `output` tokens on average.
struct Measurement {
  std::string set;     // "fit" or "held"
  std::string source;  // who published it, and when
  std::string device;
  std::string model;  // a folder with config.json, or a file of such a form
  int tensor_size = 1;
  double input = 0, output = 0;
  // Lengths are drawn evenly from [1 - spread, 1] of the nominal ones.
  double spread = 0;
  int64_t concurrency = 1;
  int64_t num_requests = 0;   // 0: ten times the concurrency
  double ttft = 0, tpot = 0;  // seconds
  bool is_median = false;     // of the requests; else the mean
};

// A table with a line of names first: set, source, device, model, tp, input, output, spread,
// concurrency, requests, statistic (mean or median), ttft_ms, tpot_ms, separated by commas.
// kInvalidData names the line.
Result<std::vector<Measurement>> ReadMeasurements(const std::filesystem::path& file);
// A result of `bench serve --save-result`, for the model and the ranks given, which it does not
// say. kInvalidData names a missing figure.
Result<Measurement> MeasurementOf(const json::Value& result, std::string_view place);

// A measurement that can be simulated.
struct MeasuredRun {
  Measurement measured;
  StepCosts costs;
  ReplayOptions options;
  std::vector<ReplayRequest> requests;
};
// The run of a measurement with an FP8 cache in what the weights leave of `utilization` of the
// device's memory. kResourceExhausted if the model does not fit.
Result<MeasuredRun> RunOf(const Measurement& measurement, const ModelConfig& model,
                          const DeviceProfile& device, double utilization = 0.9);

// Means, or medians if the measured times are.
struct Prediction {
  double ttft = 0, tpot = 0;  // seconds
  double output_per_second = 0;
  StepParts ttft_parts{}, tpot_parts{};  // amounts in these times
};
Result<Prediction> Predict(const MeasuredRun& run, const DeviceProfile& device);

// Output tokens per second of a closed loop with these mean times.
double OutputRate(const Measurement& run, double ttft, double tpot);

// The factors with which the predictions come nearest to the measurements, by least squares of
// relative errors, none below 0. Parts that the runs do not determine keep those of `device`.
Result<StepParts> FitFactors(std::span<const MeasuredRun> runs, const DeviceProfile& device,
                             int rounds = 6);

}  // namespace sluice
