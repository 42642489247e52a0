#include "cli/limits.h"

#include <algorithm>

#include "base/thread_pool.h"
#include "hardware/measure.h"
#include "hardware/topology.h"

namespace sluice::cli {

double MachineLimits::bf16_flops_per_second() const {
  return std::max({avx512_bf16_flops_per_second, amx_bf16_flops_per_second,
                   neon_bf16_flops_per_second, f32_flops_per_second});
}

MachineLimits MeasureLimits(int num_threads) {
  ThreadPool pool(num_threads, DetectTopology().core_cpus);
  MachineLimits limits;
  limits.read_bytes_per_second = MeasureReadBandwidth(pool);
  limits.avx512_bf16_flops_per_second = MeasureAvx512Bf16Peak(pool);
  limits.amx_bf16_flops_per_second = MeasureAmxBf16Peak(pool);
  limits.neon_bf16_flops_per_second = MeasureNeonBf16Peak(pool);
  limits.f32_flops_per_second = MeasureFp32Peak(pool);
  return limits;
}

}  // namespace sluice::cli
