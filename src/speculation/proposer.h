// Proposes as draft tokens those that followed earlier occurrences of the sequence's last tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "speculation/speculation_config.h"
#include "speculation/token_index.h"

namespace sluice {

// The proposer's state for one sequence.
struct SequenceProposals {
  std::unique_ptr<TokenIndex> index;  // index of the sequence's tokens
  // Maximum number of tokens to propose: twice as many as were accepted last. After a single
  // proposed token was rejected, nothing is proposed in the next `pause` steps.
  int limit = kMaxSpeculativeTokens;
  int pause = 0;
  int next_pause = 1;
};

// Proposals affect how many tokens a step yields, but not which tokens. Thread safety: one thread
// at a time. Memory: the constructor allocates the memory for past answers; the first proposal for
// a sequence allocates that sequence's.
class Proposer {
 public:
  explicit Proposer(const SpeculationConfig& config);

  // Returns the bytes for the tokens of past answers, and the maximum bytes for a sequence of
  // `max_tokens` tokens.
  static int64_t SharedBytes(const SpeculationConfig& config);
  static int64_t SequenceBytes(const SpeculationConfig& config, int64_t max_tokens);

  // Replaces `proposal` by at most `most` tokens that may follow `tokens`: the prompt and the
  // answer so far, which must only grow between calls. `max_tokens`: their maximum number.
  // `shares`: whether past answers are also searched.
  void Propose(std::span<const int32_t> tokens, int64_t max_tokens, bool shares, int64_t most,
               SequenceProposals& state, std::vector<int32_t>& proposal);
  // Adapts the state to the number of draft tokens that a step accepted.
  static void Learn(int num_proposed, int num_accepted, SequenceProposals& state);
  // Stores an answer for use by other sequences.
  void Remember(std::span<const int32_t> answer);

 private:
  // A position after an occurrence of the last tokens.
  struct Candidate {
    const TokenIndex* index = nullptr;
    uint32_t position = 0;
  };
  // Sets candidates_ to the positions with the longest match. Returns its length, or 0.
  int FindCandidates(const TokenIndex* own, bool shares, std::span<const int32_t> tail);
  // Appends the tokens that most candidates agree on to `proposal`.
  void Vote(const TokenIndex& own, size_t most, std::vector<int32_t>& proposal);

  const SpeculationConfig config_;
  std::unique_ptr<TokenIndex> past_;  // null if past answers are not used
  std::vector<Candidate> candidates_;
};

}  // namespace sluice
