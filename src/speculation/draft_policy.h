// Decides how many tokens a draft model proposes, so that proposals save more time than they cost.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "speculation/draft_costs.h"

namespace sluice {

// The measured acceptance of one sequence's draft tokens, with exponential decay.
struct DraftAcceptance {
  double verified = 0;  // draft tokens of a step up to and including the first rejected one
  double accepted = 0;
};

// Draft tokens make a step longer, and drafting K tokens takes K passes of the drafter. If a_i is
// the probability that a sequence's i-th draft token is accepted once all before it are, the
// sequence gains a_1 + a_1 a_2 + ... tokens on average. The policy chooses the K with the most
// tokens per second. It uses measured times (draft_costs.h), the sequence's acceptance, and the
// ratio of the acceptance of later draft tokens to that of first ones. If K = 0 is best, it still
// tries a few tokens occasionally; such tries take at most kShareOfTries of the time. The policy
// affects how many tokens a step yields, but not which tokens. Thread safety: one thread at a time.
class DraftPolicy {
 public:
  static constexpr double kShareOfTries = 0.015;

  // `cost_ratio`: time of a pass divided by the time of a step, used until both are measured.
  // Without `adaptive`, always proposes the maximum. `drafts_at_once`: a single pass drafts any
  // number of tokens.
  DraftPolicy(double cost_ratio, bool adaptive, bool drafts_at_once = false);

  struct Candidate {
    const DraftAcceptance* acceptance = nullptr;
    int64_t most = 0;  // maximum draft tokens
    // Tokens that the draft model must compute first, not counting the last one.
    int64_t behind = 0;
    int64_t left = 0;    // maximum number of tokens that the sequence may still get
    int64_t length = 0;  // output: number of draft tokens
  };
  // Sets the length of each candidate before a step that decodes `num_sequences`, including the
  // candidates.
  void Choose(int64_t num_sequences, std::span<Candidate> candidates);

  // Returns whether it saves time to compute `behind` missing tokens, for which nothing is
  // proposed, given that the sequence gets at most `left` more tokens.
  bool PaysToCatchUp(int64_t num_sequences, int64_t behind, int64_t left,
                     const DraftAcceptance& acceptance) const;

  // Like DraftCosts's methods of the same names, but the time of a step excludes the drafter's
  // time.
  void LearnPass(int64_t num_sequences, double seconds) {
    costs_.LearnPass(num_sequences, seconds);
  }
  void LearnCatchUp(double seconds, int64_t num_tokens) {
    costs_.LearnCatchUp(num_tokens, seconds);
  }
  void LearnStep(int64_t num_sequences, int64_t num_proposed, double seconds);
  // Updates the acceptance of a sequence whose draft tokens were verified.
  void LearnAcceptance(int num_proposed, int num_accepted, DraftAcceptance& acceptance);

  // Returns the estimated probability that the first draft token of a sequence is accepted.
  double AcceptanceOf(const DraftAcceptance& acceptance) const;

 private:
  static constexpr int64_t kMostSequences = 32;  // maximum; larger numbers count as this one
  static constexpr size_t kMostPlaces = 16;      // later draft tokens count as the last place

  // Returns the probability that the draft token at `place` is accepted if all before it are.
  double AcceptanceAt(const DraftAcceptance& acceptance, int64_t place) const;
  // Returns the time that draft tokens save until the sequence has got `left` tokens. `gain`:
  // speedup of decoding.
  double SavedSeconds(int64_t num_sequences, int64_t left, double gain) const;
  // Returns the best number of passes, or 0 if none pays. `gain`: receives the tokens per second
  // divided by those without drafts.
  int64_t BestLength(int64_t num_sequences, std::span<const Candidate> candidates,
                     double& gain) const;
  void Try(int64_t num_sequences, std::span<Candidate> candidates);

  const bool adaptive_, drafts_at_once_;
  DraftCosts costs_;
  DraftAcceptance all_;
  std::array<DraftAcceptance, kMostPlaces> places_ = {};  // acceptance over all sequences, by place
  int64_t steps_since_plain_ = 0;
  double credit_ = 1;  // time that tries may take, in units of steps
  double pause_ = 0;   // steps until the next try, so that saved credit is not spent immediately
};

}  // namespace sluice
