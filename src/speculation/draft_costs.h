// Measured times of a drafter's passes and of the steps that verify its tokens.
#pragma once

#include <array>
#include <cstdint>

namespace sluice {

// Times are not proportional to the number of sequences or draft tokens: a product with few rows
// may take as long as one with 16 rows. So each number of draft tokens has its own average. If a
// number has no average yet, its time is estimated from the others. Averages decay exponentially;
// those of draft tokens are dropped if they are old, so that a single slow step does not count
// forever. All times are in seconds. Thread safety: one thread at a time.
class DraftCosts {
 public:
  // `cost_ratio`: time of a pass divided by the time of a step, used until both are measured.
  explicit DraftCosts(double cost_ratio) : cost_ratio_(cost_ratio) {}

  // Records the time of a step without prompt tokens, with `num_proposed` draft tokens in total.
  void LearnStep(int64_t num_sequences, int64_t num_proposed, double seconds);
  // Records the time of a pass that proposed a token for each of `num_sequences`. Ignores the first
  // pass: it touches memory for the first time and may take ten times as long.
  void LearnPass(int64_t num_sequences, double seconds);
  // Records the time of a pass that only computed missing tokens.
  void LearnCatchUp(int64_t num_tokens, double seconds);

  // Returns the time of a step without draft tokens, or of one with `num_proposed` in total.
  double Step(int64_t num_sequences) const;
  double Step(int64_t num_sequences, int64_t num_proposed) const;
  // Returns the time of one more draft token in a step like the last ones.
  double Row(int64_t num_sequences) const;
  double Pass(int64_t num_sequences) const;
  double CatchUpToken() const;

 private:
  static constexpr int64_t kMostSequences = 32;  // maximum; larger numbers count as this one
  static constexpr int64_t kMostProposed = 64;   // maximum; larger numbers count as this one
  static constexpr int kNumGroups = 6;           // 1, 2, 3 to 4, 5 to 8, 9 to 16, more

  struct Average {
    double value = 0;
    int64_t count = 0;  // number of measurements
    int64_t time = 0;   // number of steps recorded at the last measurement
    bool known() const { return count > 0; }
    void Add(double sample, int64_t now);
    // Adds a measurement. `prior` counts as one measurement, so that a single slow one has less
    // effect.
    void Add(double sample, double prior, int64_t now);
  };

  static int GroupOf(int64_t num_sequences);
  // Returns the relative increase of a step's time with `num_proposed` draft tokens.
  double MoreShare(int group, int64_t num_proposed) const;

  const double cost_ratio_;
  int64_t now_ = 0;  // number of steps recorded
  bool has_passed_ = false;
  std::array<Average, kMostSequences + 1> steps_ = {};
  std::array<std::array<Average, kMostProposed + 1>, kNumGroups> shares_ = {};
  std::array<int64_t, kNumGroups> last_proposed_ = {};  // 0: no step yet
  std::array<Average, kNumGroups> passes_ = {};
  Average token_;
};

}  // namespace sluice
