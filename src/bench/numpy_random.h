// The random numbers of numpy, bit for bit, so that a benchmark with a seed sends the same requests
// as the Python tools.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace sluice::bench {

// Equivalent to numpy.random.default_rng(seed): PCG64 after a SeedSequence. Thread safety: one
// thread at a time; this applies to all generators in this file.
class NumpyGenerator {
 public:
  explicit NumpyGenerator(uint64_t seed);

  // Equivalent to integers(low, high, size=count): uniform in [low, high). REQUIRES: low < high, at
  // most 2^32 different values.
  std::vector<int64_t> Integers(int64_t low, int64_t high, int64_t count);
  int64_t Integer(int64_t low, int64_t high) { return Integers(low, high, 1)[0]; }

 private:
  uint64_t Next64();
  uint32_t Next32();

  unsigned __int128 state_ = 0, increment_ = 0;
  bool has_half_ = false;
  uint32_t half_ = 0;
};

// Equivalent to numpy.random.seed(seed) and the functions of the module itself.
class NumpyLegacyRandom {
 public:
  explicit NumpyLegacyRandom(uint32_t seed) : engine_(seed) {}

  double Uniform();  // random_sample()
  // Equivalent to gamma(shape, scale). REQUIRES: both are positive.
  double Gamma(double shape, double scale);

 private:
  double Exponential();
  double Gauss();

  std::mt19937 engine_;
  bool has_gauss_ = false;
  double gauss_ = 0;
};

}  // namespace sluice::bench
