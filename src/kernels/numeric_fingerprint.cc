#include "kernels/numeric_fingerprint.h"

#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/silu_mul.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kProbeSize = 1000;

class ProbeHash {
 public:
  void Add(std::span<const float> values) {
    for (const float value : values) {
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof(bits));
      hash_ = (hash_ ^ bits) * 1099511628211U;  // FNV-1a over words
    }
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 14695981039346656037U;
};

uint64_t Fingerprint(bool is_portable) {
  ThreadPool pool(1);
  ProbeHash hash;
  // From -8 to 8, in mixed order.
  std::vector<float> inputs(2 * kProbeSize);
  for (size_t i = 0; i < inputs.size(); ++i)
    inputs[i] = static_cast<float>((i * 7919) % inputs.size()) / 125.0f - 8.0f;
  std::vector<float> results(inputs.size());
  SiluMul(pool, inputs.data(), 1, kProbeSize, results.data(), ElementType::kF32);
  RmsNorm(pool, inputs.data(), kProbeSize, inputs.data() + kProbeSize, 1e-6f, 1, kProbeSize,
          results.data() + kProbeSize, ElementType::kF32);
  hash.Add(results);
  const std::vector<float> frequencies = RopeFrequencies(128, 500'000, {});
  const std::vector<int32_t> positions{0, 1, 77, 4095, 131'071};
  std::vector<float> table(positions.size() * 128);
  RopeTable(pool, positions, frequencies, table.data());
  hash.Add(frequencies);
  hash.Add(table);
  for (size_t i = 0; i < inputs.size(); ++i) {
    results[i] = std::exp(inputs[i]);
    if (!is_portable) results[i] += std::log1p(inputs[i] * inputs[i]) + std::tanh(inputs[i]);
  }
  hash.Add(results);
  return hash.value();
}

}  // namespace

uint64_t NumericFingerprint() {
  return Fingerprint(/*is_portable=*/false);
}

uint64_t PortableFingerprint() {
  return Fingerprint(/*is_portable=*/true);
}

}  // namespace sluice::kernels
