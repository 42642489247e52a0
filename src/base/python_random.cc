#include "base/python_random.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace sluice {
namespace {

// Computes the initial state as Python does and hands it to std::mt19937 as a seed sequence. Python
// initializes the generator from the seed's 32-bit words, differently from C++'s seed sequences.
class ArraySeed {
 public:
  using result_type = uint32_t;
  explicit ArraySeed(uint64_t seed) {
    std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
    const size_t length = key[1] != 0 ? 2 : 1;
    state_[0] = 19650218;
    for (uint32_t i = 1; i < state_.size(); ++i)
      state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
    size_t i = 1, j = 0;
    for (size_t k = state_.size(); k > 0; --k) {
      state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * 1664525u)) + key[j] +
                  static_cast<uint32_t>(j);
      Advance(i);
      if (++j >= length) j = 0;
    }
    for (size_t k = state_.size() - 1; k > 0; --k) {
      state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * 1566083941u)) -
                  static_cast<uint32_t>(i);
      Advance(i);
    }
    state_[0] = 0x80000000u;
  }
  // std::mt19937 calls this for the words of its state.
  template <typename Iterator>
  void generate(Iterator begin, Iterator end) {
    for (size_t i = 0; begin != end; ++begin, ++i) *begin = state_[i];
  }

 private:
  void Advance(size_t& i) {
    if (++i < state_.size()) return;
    state_[0] = state_[state_.size() - 1];
    i = 1;
  }
  std::array<uint32_t, 624> state_{};
};

}  // namespace

PythonRandom::PythonRandom(uint64_t seed) {
  ArraySeed sequence(seed);
  engine_.seed(sequence);
}

double PythonRandom::Random() {
  const auto a = static_cast<double>(engine_() >> 5), b = static_cast<double>(engine_() >> 6);
  return (a * 67108864.0 + b) / 9007199254740992.0;
}

uint64_t PythonRandom::Below(uint64_t count) {
  CHECK(count > 0 && count <= uint64_t{1} << 32, "{}", count);
  unsigned bits = 0;
  while (bits < 33 && (count >> bits) != 0) ++bits;
  while (true) {
    uint64_t value = 0;
    if (bits <= 32) {
      value = engine_() >> (32 - bits);
    } else {
      value = engine_();
      value |= static_cast<uint64_t>(engine_() >> 31) << 32;
    }
    if (value < count) return value;
  }
}

std::vector<size_t> PythonRandom::Choices(size_t size, size_t count) {
  std::vector<size_t> result(count);
  for (size_t& index : result)
    index = static_cast<size_t>(std::floor(Random() * static_cast<double>(size)));
  return result;
}

std::vector<size_t> PythonRandom::Sample(size_t size, size_t count) {
  CHECK(count <= size, "cannot sample {} of {}", count, size);
  // Python samples a small population by swapping elements of a copy, and a large one by
  // remembering the indices it has drawn. The two methods draw different numbers.
  size_t small = 21;
  if (count > 5) {
    size_t power = 1;
    while (power < count * 3) power *= 4;
    small += power;
  }
  std::vector<size_t> result;
  if (size <= small) {
    std::vector<size_t> pool(size);
    std::iota(pool.begin(), pool.end(), size_t{0});
    for (size_t i = 0; i < count; ++i) {
      const uint64_t j = Below(size - i);
      result.push_back(pool[j]);
      pool[j] = pool[size - i - 1];
    }
    return result;
  }
  while (result.size() < count) {
    const size_t j = Below(size);
    if (std::find(result.begin(), result.end(), j) == result.end()) result.push_back(j);
  }
  return result;
}

}  // namespace sluice
