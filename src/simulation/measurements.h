// Measured runs of servers, read from tables of published rows or from results of `sluice bench
// serve`.
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

// A closed-loop run: `concurrency` requests run at a time. On average, a prompt has `input` tokens
// and an answer `output` tokens.
struct Measurement {
  std::string set;     // "fit" (used to fit factors) or "held" (only used to test them)
  std::string source;  // who published the measurement, and when
  std::string device;
  std::string model;  // a folder with config.json, or a file with the same content
  int tensor_size = 1;
  double input = 0, output = 0;
  // Lengths are drawn uniformly from [1 - spread, 1] times the nominal lengths.
  double spread = 0;
  int64_t concurrency = 1;
  int64_t num_requests = 0;   // 0: ten times the concurrency
  double ttft = 0, tpot = 0;  // time to first token and time per output token, in seconds
  bool is_median = false;     // whether times are medians over the requests, not means
};

// Reads comma-separated values with a header line: set, source, device, model, tp, input, output,
// spread, concurrency, requests, statistic (mean or median), ttft_ms, tpot_ms. kInvalidData names
// the line.
Result<std::vector<Measurement>> ReadMeasurements(const std::filesystem::path& file);
// Reads a result of `bench serve --save-result` from the file `place`. The caller sets set, device,
// model and tensor_size, which a result does not contain. kInvalidData names a missing figure.
Result<Measurement> MeasurementOf(const json::Value& result, std::string_view place);

// A measurement, and everything that its simulation needs.
struct MeasuredRun {
  Measurement measured;
  StepCosts costs;
  ReplayOptions options;
  std::vector<ReplayRequest> requests;
};
// Returns the run of a measurement with an FP8 cache. The cache takes `utilization` of the device's
// memory minus the weights. kResourceExhausted if the model does not fit.
Result<MeasuredRun> RunOf(const Measurement& measurement, const ModelConfig& model,
                          const DeviceProfile& device, double utilization = 0.9);

// Predicted means, or medians if the measured times are medians.
struct Prediction {
  double ttft = 0, tpot = 0;  // time to first token and time per output token, in seconds
  double output_per_second = 0;
  StepParts ttft_parts{}, tpot_parts{};  // amounts of the steps within these times
};
Result<Prediction> Predict(const MeasuredRun& run, const DeviceProfile& device);

// Returns the output tokens per second of a closed loop with these mean times.
double OutputRate(const Measurement& run, double ttft, double tpot);

// Returns the nonnegative factors whose predictions have the smallest sum of squared relative
// errors. Parts that the runs do not determine keep the factors of `device`.
Result<StepParts> FitFactors(std::span<const MeasuredRun> runs, const DeviceProfile& device,
                             int rounds = 6);

}  // namespace sluice
