// Proposes the tokens that may follow, from what followed the same tokens before.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "speculation/speculation_config.h"
#include "speculation/token_index.h"

namespace sluice {

// What the proposer keeps of one sequence.
struct SequenceProposals {
  std::unique_ptr<TokenIndex> index;  // of its tokens
  // How many tokens are worth proposing: all of those that were right lately, and none in the next
  // `pause` steps where nothing was right.
  int limit = kMaxSpeculativeTokens;
  int pause = 0;
  int next_pause = 1;
};

// Proposals decide how many tokens a step yields, never which. Thread safety: one thread at a time.
// Memory: past answers' is taken by the constructor, a sequence's with its first proposal.
class Proposer {
 public:
  explicit Proposer(const SpeculationConfig& config);

  // Bytes of the tokens of past answers, and at most of a sequence of so many tokens.
  static int64_t SharedBytes(const SpeculationConfig& config);
  static int64_t SequenceBytes(const SpeculationConfig& config, int64_t max_tokens);

  // Replaces `proposal` by at most `most` tokens that may follow `tokens`: the prompt and the
  // answer so far, which only grow from call to call. `max_tokens`: their number at the end. Past
  // answers are looked through where `shares` says so.
  void Propose(std::span<const int32_t> tokens, int64_t max_tokens, bool shares, int64_t most,
               SequenceProposals& state, std::vector<int32_t>& proposal);
  // What a step found of it.
  static void Learn(int num_proposed, int num_accepted, SequenceProposals& state);
  // Keeps an answer for other sequences.
  void Remember(std::span<const int32_t> answer);

 private:
  // Places after an occurrence of the last tokens.
  struct Candidate {
    const TokenIndex* index = nullptr;
    uint32_t position = 0;
  };
  // Fills candidates_ with those that have the longest match. Returns its length, or 0.
  int FindCandidates(const TokenIndex* own, bool shares, std::span<const int32_t> tail);
  // Appends what the candidates agree on to `proposal`.
  void Vote(const TokenIndex& own, size_t most, std::vector<int32_t>& proposal);

  const SpeculationConfig config_;
  std::unique_ptr<TokenIndex> past_;  // null where past answers are not looked through
  std::vector<Candidate> candidates_;
};

}  // namespace sluice
