// How many tokens a draft model is asked for: as many as save more time than they take.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace sluice {

// What was found of the proposals of one sequence, older ones counting less.
struct DraftAcceptance {
  double verified = 0;  // up to and including the first wrong one of a step
  double accepted = 0;
};

// A step that decodes n sequences takes s seconds, a pass of the draft model p, and v is what each
// proposed token adds to the step. With K passes a sequence whose tokens are accepted with
// probability a gains a + a^2 + ... + a^K tokens on average: the policy chooses the K with the most
// tokens a second, from times and shares that it measures. Where the best is no K at all, it tries
// a few tokens now and then: tries take no more than kShareOfTries of the time. What it chooses
// decides how many tokens a step yields, never which. Thread safety: one thread at a time.
class DraftPolicy {
 public:
  static constexpr double kShareOfTries = 0.015;

  // `cost_ratio`: the time of a pass over that of a step, for as long as nothing was measured. Not
  // `adaptive`: as many are proposed as may be.
  DraftPolicy(double cost_ratio, bool adaptive);

  struct Candidate {
    const DraftAcceptance* acceptance = nullptr;
    int64_t most = 0;    // tokens that may be proposed
    int64_t behind = 0;  // tokens that the draft has to compute first, but for the last one
    int64_t left = 0;    // tokens that the sequence may still get
    int64_t length = 0;  // out
  };
  // Before a step of `num_sequences` that decode, of which the candidates are some.
  void Choose(int64_t num_sequences, std::span<Candidate> candidates);

  // Whether computing so many tokens, of which nothing is proposed yet, pays before the sequence
  // has got `left` more.
  bool PaysToCatchUp(int64_t num_sequences, int64_t behind, int64_t left,
                     const DraftAcceptance& acceptance) const;

  void LearnPass(double seconds);
  void LearnCatchUp(double seconds, int64_t num_tokens);
  // A step of decoding sequences alone, without what the draft took.
  void LearnStep(int64_t num_sequences, int64_t num_proposed, double seconds);
  // Updates the acceptance of a sequence whose draft tokens were verified.
  void LearnAcceptance(int num_proposed, int num_accepted, DraftAcceptance& acceptance);

  // The estimates: for tests.
  double AcceptanceOf(const DraftAcceptance& acceptance) const;
  double StepSeconds(int64_t num_sequences) const;
  double PassSeconds() const;

 private:
  // A mean of which later values count more.
  struct Average {
    double value = 0;
    bool known = false;
    void Add(double sample, double weight) {
      value = known ? value + weight * (sample - value) : sample;
      known = true;
    }
  };
  static constexpr int64_t kMostSequences = 32;  // more are as so many

  double RowSeconds(int64_t num_sequences) const;
  double TokenSeconds() const;  // of a token that the draft catches up
  // What a sequence saves of the time of its steps, until it has got `left` tokens.
  double SavedSeconds(int64_t num_sequences, int64_t left, double gain) const;
  // The passes that pay best, 0 for none, and how many times as many tokens a second they give.
  int64_t BestLength(int64_t num_sequences, std::span<const Candidate> candidates,
                     double& gain) const;
  void Try(int64_t num_sequences, std::span<Candidate> candidates);

  const double cost_ratio_;
  const bool adaptive_;
  std::array<Average, kMostSequences + 1> steps_ = {};  // seconds, by number of sequences
  Average pass_, token_, row_share_;                    // the last one in steps
  DraftAcceptance all_;
  int64_t steps_since_plain_ = 0;
  double credit_ = 1;  // what may be spent on tries, in steps
};

}  // namespace sluice
