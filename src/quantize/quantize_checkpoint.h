// Converts a checkpoint of plain weights to a published quantized layout.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "quantize/targets.h"
#include "tensor/encode_rows.h"

namespace sluice {

struct QuantizeOptions {
  const QuantizeTarget* target = nullptr;
  bool fp8_kv_cache = false;         // whether to store scales of keys and values
  std::vector<std::string> exclude;  // modules by name, glob or "re:" regular expression
  GroupScales group_scales = GroupScales::kAmax;
  double input_percentile = 100;  // percentile of the inputs' magnitudes that the input scale
                                  // covers
  // Token ids of the calibration text. Required if scales of inputs, keys or values are stored.
  std::vector<std::vector<int32_t>> calibration;
  int64_t max_file_bytes = int64_t{4} << 30;
};

struct QuantizeReport {
  int64_t quantized_modules = 0;
  int64_t plain_modules = 0;  // number of linear layers that were not quantized
  int64_t source_bytes = 0;
  int64_t written_bytes = 0;
  double relative_error = 0;  // RMS of the quantized weights' error divided by their RMS
};

// Receives the number of source bytes that are done, and their total number.
using QuantizeProgress = std::function<void(int64_t done, int64_t total)>;

// Writes the folder `out`, which must not exist, and copies all files except the weights from
// `source`. Works layer by layer: peak memory is about one layer and, for calibration, the hidden
// states of its text. `out` appears complete at the end. Until then, the data is in
// "<out>.partial", which has no config.json and is removed on failure or by the next run.
// kUnavailable if another run uses that folder.
Result<QuantizeReport> QuantizeCheckpoint(ThreadPool& pool, const std::filesystem::path& source,
                                          const std::filesystem::path& out,
                                          const QuantizeOptions& options,
                                          const QuantizeProgress& progress);

}  // namespace sluice
