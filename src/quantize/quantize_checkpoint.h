// Turns a checkpoint of plain weights into one of a published quantized layout.
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
  bool fp8_kv_cache = false;         // store scales of keys and values
  std::vector<std::string> exclude;  // modules by name, glob or "re:" regular expression
  GroupScales group_scales = GroupScales::kAmax;
  double input_percentile = 100;  // of the inputs' magnitudes that the input scale covers
  // Token ids of the calibration text, needed where inputs, keys or values have stored scales.
  std::vector<std::vector<int32_t>> calibration;
  int64_t max_file_bytes = int64_t{4} << 30;
};

struct QuantizeReport {
  int64_t quantized_modules = 0;
  int64_t plain_modules = 0;  // linear layers that were left as they are
  int64_t source_bytes = 0;
  int64_t written_bytes = 0;
  double relative_error = 0;  // rms of the change of the quantized weights over their rms
};

// Bytes of the source's weights done and in all.
using QuantizeProgress = std::function<void(int64_t done, int64_t total)>;

// Writes the folder `out`, which must not exist, with everything that stands beside the weights in
// `source`. Works layer by layer: peak memory is about one layer (and, for calibration, the hidden
// states of its text). `out` appears whole at the end: until then the work stands in a folder
// beside it, "<out>.partial", that has no config.json and that a failure or the next run removes.
// A run that meets another one at work there is refused: kUnavailable.
Result<QuantizeReport> QuantizeCheckpoint(ThreadPool& pool, const std::filesystem::path& source,
                                          const std::filesystem::path& out,
                                          const QuantizeOptions& options,
                                          const QuantizeProgress& progress);

}  // namespace sluice
