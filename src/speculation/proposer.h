// Proposes draft tokens: those that followed earlier occurrences of the last tokens.
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
  std::unique_ptr<TokenIndex> index;  // of its tokens
  // At most `limit` tokens are proposed: twice as many as were accepted last. If a single token was
  // rejected, nothing is proposed in the next `pause` steps.
  int limit = kMaxSpeculativeTokens;
  int pause = 0;
  int next_pause = 1;
};

// Proposals affect how many tokens a step yields, never which. Thread safety: one thread at a time.
// Memory: the constructor allocates that of past answers, the first proposal that of a sequence.
class Proposer {
 public:
  explicit Proposer(const SpeculationConfig& config);

  // Bytes for the tokens of past answers, and maximum bytes for a sequence of `max_tokens` tokens.
  static int64_t SharedBytes(const SpeculationConfig& config);
  static int64_t SequenceBytes(const SpeculationConfig& config, int64_t max_tokens);

  // Replaces `proposal` by at most `most` tokens that may follow `tokens`: the prompt and the
  // answer so far, which only grow from call to call. `max_tokens`: their maximum number. `shares`:
  // past answers are searched, too.
  void Propose(std::span<const int32_t> tokens, int64_t max_tokens, bool shares, int64_t most,
               SequenceProposals& state, std::vector<int32_t>& proposal);
  // Adapts the state to the result of a step.
  static void Learn(int num_proposed, int num_accepted, SequenceProposals& state);
  // Stores an answer, for other sequences.
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
