#include "speculation/proposer.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {
namespace {

// Maximum number of indexed tokens of a sequence. Most repetitions are near.
constexpr int64_t kMostIndexed = int64_t{1} << 16;
// Maximum number of matches that vote, enough to distinguish likely tokens from unlikely ones.
constexpr int kMostCandidates = 32;
constexpr int kLongestPause = 128;
// Separates past answers in the index. No token has this value.
constexpr int32_t kEnd = -1;

}  // namespace

Proposer::Proposer(const SpeculationConfig& config) : config_(config) {
  CHECK(config.num_tokens > 0 && config.num_tokens <= kMaxSpeculativeTokens);
  CHECK(config.lookup_min > 0 && config.lookup_max >= config.lookup_min);
  candidates_.reserve(2 * kMostCandidates);
  if (config.method == SpeculationConfig::Method::kSuffix && config.cached_tokens > 0) {
    past_ =
        std::make_unique<TokenIndex>(static_cast<size_t>(config.cached_tokens), config.lookup_min);
  }
}

int64_t Proposer::SharedBytes(const SpeculationConfig& config) {
  if (config.method != SpeculationConfig::Method::kSuffix || config.cached_tokens == 0) return 0;
  return static_cast<int64_t>(TokenIndex::Bytes(static_cast<size_t>(config.cached_tokens)));
}

int64_t Proposer::SequenceBytes(const SpeculationConfig& config, int64_t max_tokens) {
  if (config.method == SpeculationConfig::Method::kNone) return 0;
  const int64_t indexed = std::min(max_tokens, kMostIndexed);
  return static_cast<int64_t>(TokenIndex::Bytes(static_cast<size_t>(indexed)));
}

int Proposer::FindCandidates(const TokenIndex* own, bool shares, std::span<const int32_t> tail) {
  int longest = config_.lookup_min - 1;
  candidates_.clear();
  const int most = config_.method == SpeculationConfig::Method::kSuffix ? kMostCandidates : 1;
  const TokenIndex* const past = shares ? past_.get() : nullptr;
  for (const TokenIndex* index : {own, past}) {
    if (index == nullptr) continue;
    index->ForEachCandidate(tail, kMostCandidates, [&](uint32_t position) {
      const int length = index->MatchLength(position, tail);
      if (length < longest || length < config_.lookup_min) return true;
      if (length > longest) candidates_.clear();
      longest = length;
      if (static_cast<int>(candidates_.size()) < most) candidates_.push_back({index, position});
      return length < static_cast<int>(tail.size()) || most > 1;
    });
  }
  return candidates_.empty() ? 0 : longest;
}

void Proposer::Vote(const TokenIndex& own, size_t most, std::vector<int32_t>& proposal) {
  const size_t num_candidates = candidates_.size();
  const auto next = [&](const Candidate& candidate) {
    if (candidate.index->Keeps(candidate.position)) return candidate.index->At(candidate.position);
    // Positions after the sequence's last token are those of the tokens proposed so far.
    const size_t place = candidate.position - own.size();
    return candidate.index == &own && place < proposal.size() ? proposal[place] : kEnd;
  };
  while (proposal.size() < most) {
    // Takes the most frequent token. Ties go to the first candidate, which is the latest.
    int32_t token = kEnd;
    int64_t votes = 0;
    for (const Candidate& candidate : candidates_) {
      const int32_t other = next(candidate);
      if (other == kEnd || other == token) continue;
      const int64_t count =
          std::ranges::count_if(candidates_, [&](const Candidate& c) { return next(c) == other; });
      if (count > votes) {
        votes = count;
        token = other;
      }
    }
    if (token == kEnd) return;
    if (static_cast<double>(votes) < config_.min_token_prob * static_cast<double>(num_candidates))
      return;
    std::erase_if(candidates_, [&](const Candidate& c) { return next(c) != token; });
    for (Candidate& candidate : candidates_) ++candidate.position;
    proposal.push_back(token);
  }
}

void Proposer::Propose(std::span<const int32_t> tokens, int64_t max_tokens, bool shares,
                       int64_t most, SequenceProposals& state, std::vector<int32_t>& proposal) {
  proposal.clear();
  most = std::min<int64_t>({most, config_.num_tokens, state.limit});
  if (most <= 0 || static_cast<int64_t>(tokens.size()) < config_.lookup_min) return;
  if (state.pause > 0) {
    --state.pause;
    return;
  }
  if (state.index == nullptr) {
    state.index = std::make_unique<TokenIndex>(
        static_cast<size_t>(std::min(max_tokens, kMostIndexed)), config_.lookup_min);
  }
  state.index->Append(tokens.subspan(state.index->size()));
  const auto tail = tokens.last(std::min(tokens.size(), static_cast<size_t>(config_.lookup_max)));
  const int length = FindCandidates(state.index.get(), shares, tail);
  if (length == 0) return;
  if (config_.method == SpeculationConfig::Method::kSuffix)
    most = std::min(most, static_cast<int64_t>(config_.max_spec_factor * length));
  Vote(*state.index, static_cast<size_t>(most), proposal);
}

void Proposer::Learn(int num_proposed, int num_accepted, SequenceProposals& state) {
  if (num_proposed == 0) return;
  if (num_accepted == num_proposed) {
    state.limit = std::min(kMaxSpeculativeTokens, 2 * std::max(state.limit, num_accepted));
    state.next_pause = 1;
  } else if (num_accepted > 0) {
    state.limit = 2 * num_accepted;
    state.next_pause = 1;
  } else {
    state.limit = std::max(1, num_proposed / 2);
    if (num_proposed > 1) return;
    state.pause = state.next_pause;
    state.next_pause = std::min(kLongestPause, 2 * state.next_pause);
  }
}

void Proposer::Remember(std::span<const int32_t> answer) {
  if (past_ == nullptr || answer.empty()) return;
  past_->Append(answer);
  past_->Append({&kEnd, 1});
}

}  // namespace sluice
