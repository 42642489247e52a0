#include "simulation/device_factors.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace sluice {
namespace {

// In the order of StepPart: weights, cache, products, narrow, attention, layers, steps, sequences,
// link bytes, link waits, request. Fitted by `sluice fit` to the rows of the device that
// tests/data/simulation/published.csv marks "fit": FP8 and NVFP4 weights, FP8 cache, vLLM.
constexpr StepParts kHopper = {1,         1.389,    1.787, 0,        3.251, 5.244e-05,
                               1.097e-03, 9.469e-6, 1.465, 3.923e-6, 0.0316};
constexpr StepParts kBlackwell = {1.089,    1,        1.821, 0, 4.715,  5.541e-05,
                                  1.12e-03, 1.467e-5, 3.59,  0, 0.05852};

constexpr StepParts kMi355x = {1.025,     1,        2.05, 0, 4.911,  5.39e-05,
                               1.112e-03, 1.458e-5, 3.59, 0, 0.05865};

constexpr StepParts WithWeights(StepParts parts, double weights) {
  parts[0] = weights;
  return parts;
}

constexpr DeviceFactors kFactors[] = {
    {"H100", 0.1, kHopper, "same as H200, not fitted to any row of an H100"},
    {"H200", 0.07, kHopper, "InferenceMAX 2025-10-29, vLLM, Llama 3.1 70B FP8, 36 rows"},
    {"B200", 0.09, kBlackwell,
     "InferenceMAX 2025-10-29, vLLM, Llama 3.1 70B FP8 and NVFP4, 72 rows"},
    {"GB200", 0.2, kBlackwell, "those of B200"},
    // Measured: 2.7 tok/s with FP8 weights, 4.0 to 4.2 with NVFP4. Reading the weights at the data
    // sheet's bandwidth would allow 3.9 and 6.7 tok/s.
    {"GB10", 0.25, WithWeights(kHopper, 1.5),
     "those of H200; weights by LMSYS's review of DGX Spark (2025-10) and "
     "NVIDIA/dgx-spark-playbooks issue 79 (2026)"},
    {"MI300X", 0.25, kHopper, "those of H200"},
    {"MI355X", 0.25, kMi355x, "vLLM recipe 2025, Llama 3.3 70B FP8, one row; else those of B200"},
    {"L40S", 0.25, kHopper, "those of H200"},
    {"RTX-PRO-6000", 0.25, kBlackwell, "those of B200"},
    // A single socket has no exchanges, and the host itself is the device.
    {"Xeon-8480", 0.4, WithWeights(kHopper, 1.3), "those of H200; weights by a guess"},
    {"EPYC-9755", 0.4, WithWeights(kHopper, 1.3), "those of H200; weights by a guess"},
};

constexpr double kTera = 1e12;

}  // namespace

const DeviceFactors& FactorsOf(std::string_view name) {
  const auto* found = std::ranges::find(kFactors, name, &DeviceFactors::name);
  CHECK(found != std::end(kFactors), "no factors of the device {}", name);
  return *found;
}

std::vector<DeviceProfile> CpuProfiles() {
  // Bandwidth: eight channels of DDR5-4800, or twelve of DDR5-6400. BF16 rate: with AMX or AVX-512.
  DeviceProfile xeon;
  xeon.name = "Xeon-8480";
  xeon.is_cpu = true;
  xeon.memory_bytes = 512'000'000'000;
  xeon.system_bytes = 16'000'000'000;
  xeon.bytes_per_second = 0.307 * kTera;
  xeon.link_bytes_per_second = 48e9;
  xeon.bf16_flops = 180 * kTera;
  DeviceProfile epyc = xeon;
  epyc.name = "EPYC-9755";
  epyc.memory_bytes = 768'000'000'000;
  epyc.bytes_per_second = 0.614 * kTera;
  epyc.bf16_flops = 32 * kTera;
  return {xeon, epyc};
}

}  // namespace sluice
