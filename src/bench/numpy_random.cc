#include "bench/numpy_random.h"

#include <array>
#include <cmath>

#include "base/check.h"

namespace sluice::bench {
namespace {

using Wide = unsigned __int128;

// Equivalent to numpy.random.SeedSequence(seed).generate_state(8): mixes the words of the seed into
// a pool of four words, from which it hashes the state.
std::array<uint32_t, 8> SeedState(uint64_t seed) {
  constexpr uint32_t kMixLeft = 0xca01f9dd, kMixRight = 0x4973f715;
  uint32_t constant = 0x43b0d7e5;
  const auto hash = [&](uint32_t value) {
    value ^= constant;
    constant *= 0x931e8875;
    value *= constant;
    return value ^ (value >> 16);
  };
  const auto mix = [](uint32_t x, uint32_t y) {
    const uint32_t result = kMixLeft * x - kMixRight * y;
    return result ^ (result >> 16);
  };
  const std::array<uint32_t, 2> entropy = {static_cast<uint32_t>(seed),
                                           static_cast<uint32_t>(seed >> 32)};
  std::array<uint32_t, 4> pool{};
  for (size_t i = 0; i < pool.size(); ++i) pool[i] = hash(i < entropy.size() ? entropy[i] : 0);
  for (size_t from = 0; from < pool.size(); ++from) {
    for (size_t to = 0; to < pool.size(); ++to) {
      if (from != to) pool[to] = mix(pool[to], hash(pool[from]));
    }
  }
  std::array<uint32_t, 8> state{};
  constant = 0x8b51f9dd;
  for (size_t i = 0; i < state.size(); ++i) {
    uint32_t value = pool[i % pool.size()] ^ constant;
    constant *= 0x58f38ded;
    value *= constant;
    state[i] = value ^ (value >> 16);
  }
  return state;
}

constexpr Wide kMultiplier = (Wide{2549297995355413924ULL} << 64) | 4865540595714422341ULL;

}  // namespace

NumpyGenerator::NumpyGenerator(uint64_t seed) {
  const std::array<uint32_t, 8> words = SeedState(seed);
  const auto word64 = [&](size_t i) {
    return (Wide{words[2 * i + 1]} << 32) | words[2 * i];  // joins pairs of words, the low one
                                                           // first
  };
  const Wide start = (word64(0) << 64) | word64(1);
  const Wide sequence = (word64(2) << 64) | word64(3);
  increment_ = (sequence << 1) | 1;
  state_ = (increment_ + start) * kMultiplier + increment_;
}

uint64_t NumpyGenerator::Next64() {
  state_ = state_ * kMultiplier + increment_;
  const uint64_t folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
  const auto turn = static_cast<unsigned>(state_ >> 122);
  return (folded >> turn) | (folded << ((64 - turn) & 63));
}

uint32_t NumpyGenerator::Next32() {
  if (has_half_) {
    has_half_ = false;
    return half_;
  }
  const uint64_t next = Next64();
  has_half_ = true;
  half_ = static_cast<uint32_t>(next >> 32);
  return static_cast<uint32_t>(next);
}

std::vector<int64_t> NumpyGenerator::Integers(int64_t low, int64_t high, int64_t count) {
  CHECK(low < high && static_cast<uint64_t>(high - low) <= uint64_t{1} << 32, "[{}, {})", low,
        high);
  const uint64_t range = static_cast<uint64_t>(high - low);  // number of possible values
  std::vector<int64_t> result(static_cast<size_t>(count), low);
  if (range == 1) return result;
  for (int64_t& value : result) {
    if (range == uint64_t{1} << 32) {
      value = low + Next32();
      continue;
    }
    // Lemire's method.
    uint64_t product = Next32() * range;
    if (static_cast<uint32_t>(product) < range) {
      const uint32_t threshold =
          static_cast<uint32_t>((uint64_t{0xffffffff} - (range - 1)) % range);
      while (static_cast<uint32_t>(product) < threshold) product = Next32() * range;
    }
    value = low + static_cast<int64_t>(product >> 32);
  }
  return result;
}

double NumpyLegacyRandom::Uniform() {
  const auto a = static_cast<double>(engine_() >> 5), b = static_cast<double>(engine_() >> 6);
  return (a * 67108864.0 + b) / 9007199254740992.0;
}

double NumpyLegacyRandom::Exponential() {
  return -std::log(1.0 - Uniform());
}

double NumpyLegacyRandom::Gauss() {
  if (has_gauss_) {
    has_gauss_ = false;
    return gauss_;
  }
  while (true) {
    const double x = 2.0 * Uniform() - 1.0, y = 2.0 * Uniform() - 1.0;
    const double square = x * x + y * y;
    if (square >= 1.0 || square == 0.0) continue;
    const double factor = std::sqrt(-2.0 * std::log(square) / square);
    gauss_ = factor * x;
    has_gauss_ = true;
    return factor * y;
  }
}

double NumpyLegacyRandom::Gamma(double shape, double scale) {
  if (shape == 1.0) return scale * Exponential();
  if (shape < 1.0) {
    while (true) {
      const double u = Uniform(), v = Exponential();
      if (u <= 1.0 - shape) {
        const double x = std::pow(u, 1.0 / shape);
        if (x <= v) return scale * x;
      } else {
        const double y = -std::log((1.0 - u) / shape);
        const double x = std::pow(1.0 - shape + shape * y, 1.0 / shape);
        if (x <= v + y) return scale * x;
      }
    }
  }
  const double b = shape - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * b);
  while (true) {
    double x = 0, v = 0;
    do {
      x = Gauss();
      v = 1.0 + c * x;
    } while (v <= 0.0);
    v = v * v * v;
    const double u = Uniform();
    if (u < 1.0 - 0.0331 * (x * x) * (x * x)) return scale * (b * v);
    if (std::log(u) < 0.5 * x * x + b * (1.0 - v + std::log(v))) return scale * (b * v);
  }
}

}  // namespace sluice::bench
