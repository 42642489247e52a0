// Python's random.Random, as far as few-shot sampling needs it: the same seed picks the same
// examples as lm_eval does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

class PythonRandom {
 public:
  // As random.Random(seed) for 0 <= seed < 2**32.
  explicit PythonRandom(uint32_t seed);

  // As random.sample(range(population), count). REQUIRES: count <= population < 2**31.
  std::vector<size_t> Sample(size_t population, size_t count);

 private:
  static constexpr size_t kWords = 624;

  uint32_t NextWord();             // of the Mersenne Twister
  uint32_t Below(uint32_t bound);  // REQUIRES: bound > 0

  std::array<uint32_t, kWords> state_;
  size_t next_ = kWords;
};

}  // namespace sluice
