#include "eval/python_random.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/check.h"

namespace sluice {
namespace {

constexpr uint32_t kUpperBit = 0x80000000;

uint32_t Twist(uint32_t upper, uint32_t lower, uint32_t far) {
  const uint32_t mixed = (upper & kUpperBit) | (lower & ~kUpperBit);
  return far ^ (mixed >> 1) ^ ((mixed & 1) != 0 ? 0x9908b0df : 0);
}

}  // namespace

// MT19937's init_by_array with the seed as its only key, which is what Python does with an integer.
PythonRandom::PythonRandom(uint32_t seed) {
  const auto fill = [this](uint32_t first) {
    state_[0] = first;
    for (uint32_t i = 1; i < kWords; ++i)
      state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  };
  const auto mix = [this](size_t i, uint32_t factor) {
    return state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * factor);
  };
  fill(19650218);
  size_t i = 1;
  const auto advance = [&] {
    if (++i < kWords) return;
    state_[0] = state_[kWords - 1];
    i = 1;
  };
  for (size_t k = 0; k < kWords; ++k, advance()) state_[i] = mix(i, 1664525) + seed;
  for (size_t k = 1; k < kWords; ++k, advance())
    state_[i] = mix(i, 1566083941) - static_cast<uint32_t>(i);
  state_[0] = kUpperBit;
}

uint32_t PythonRandom::NextWord() {
  constexpr size_t kFar = 397;
  if (next_ == kWords) {
    for (size_t i = 0; i < kWords; ++i)
      state_[i] = Twist(state_[i], state_[(i + 1) % kWords], state_[(i + kFar) % kWords]);
    next_ = 0;
  }
  uint32_t word = state_[next_++];
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680;
  word ^= (word << 15) & 0xefc60000;
  return word ^ (word >> 18);
}

uint32_t PythonRandom::Below(uint32_t bound) {
  const int bits = std::bit_width(bound);
  uint32_t value;
  do {
    value = NextWord() >> (32 - bits);
  } while (value >= bound);
  return value;
}

std::vector<size_t> PythonRandom::Sample(size_t population, size_t count) {
  CHECK(count <= population, "cannot sample {} of {}", count, population);
  // Python swaps within a copy of a small population and remembers what it drew from a large one;
  // the two draw different numbers.
  size_t small = 21;
  if (count > 5) {
    size_t power = 1;
    while (power < count * 3) power *= 4;
    small += power;
  }
  std::vector<size_t> result;
  if (population <= small) {
    std::vector<size_t> pool(population);
    std::iota(pool.begin(), pool.end(), size_t{0});
    for (size_t i = 0; i < count; ++i) {
      const uint32_t j = Below(static_cast<uint32_t>(population - i));
      result.push_back(pool[j]);
      pool[j] = pool[population - i - 1];
    }
    return result;
  }
  while (result.size() < count) {
    const size_t j = Below(static_cast<uint32_t>(population));
    if (std::find(result.begin(), result.end(), j) == result.end()) result.push_back(j);
  }
  return result;
}

}  // namespace sluice
