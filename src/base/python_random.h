// The random numbers of Python's random module, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace sluice {

// Equivalent to random.seed(seed) and the module's functions. Thread safety: one thread at a time.
class PythonRandom {
 public:
  explicit PythonRandom(uint64_t seed);

  double Random();                 // random()
  uint64_t Below(uint64_t count);  // randrange(count). REQUIRES: count > 0

  template <typename T>
  void Shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i-- > 1;) std::swap(items[i], items[Below(i + 1)]);
  }
  // Returns the indices that choices(range(size), k=count) would choose.
  std::vector<size_t> Choices(size_t size, size_t count);
  // Equivalent to sample(range(size), count). REQUIRES: count <= size.
  std::vector<size_t> Sample(size_t size, size_t count);

 private:
  std::mt19937 engine_;
};

}  // namespace sluice
