#include "sampler/logits_processor.h"

#include <algorithm>
#include <limits>

namespace sluice {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

void MaskAllBut(std::span<const int32_t> allowed, std::span<float> logits) {
  // Masks the gaps between the allowed ids in place, in ascending order.
  thread_local std::vector<int32_t> sorted;
  if (!std::is_sorted(allowed.begin(), allowed.end())) {
    sorted.assign(allowed.begin(), allowed.end());
    std::sort(sorted.begin(), sorted.end());
    allowed = sorted;
  }
  size_t next = 0;
  for (const int32_t token : allowed) {
    const size_t index = static_cast<size_t>(token);
    if (index < next) continue;  // a duplicate in the list
    std::fill(logits.begin() + static_cast<int64_t>(next), logits.begin() + token, kMasked);
    next = index + 1;
  }
  std::fill(logits.begin() + static_cast<int64_t>(next), logits.end(), kMasked);
}

void Penalize(const SamplingParams& params, std::span<const TokenCounts::Entry> entries,
              std::span<float> logits) {
  const float repetition = static_cast<float>(params.repetition_penalty);
  const float frequency = static_cast<float>(params.frequency_penalty);
  const float presence = static_cast<float>(params.presence_penalty);
  for (const TokenCounts::Entry& entry : entries) {
    float& logit = logits[static_cast<size_t>(entry.token)];
    if (repetition != 1) logit = logit > 0 ? logit / repetition : logit * repetition;
    if (entry.in_output == 0) continue;
    logit -= frequency * static_cast<float>(entry.in_output);
    logit -= presence;
  }
}

}  // namespace

bool AllowsOnly(std::span<const int32_t> end_tokens, std::span<const uint32_t> mask) {
  for (size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] == 0) continue;
    uint32_t others = mask[i];
    for (const int32_t token : end_tokens) {
      if (static_cast<size_t>(token) / 32 == i) others &= ~(1u << (token % 32));
    }
    if (others != 0) return false;
  }
  return true;
}

void MaskByBits(std::span<const uint32_t> mask, std::span<float> logits) {
  for (size_t first = 0; first < logits.size(); first += 32) {
    const uint32_t word = mask[first / 32];
    const size_t count = std::min<size_t>(32, logits.size() - first);
    float* const row = logits.data() + first;
    if (word == 0) {
      std::fill_n(row, count, kMasked);
    } else if (word != ~uint32_t{0}) {
      for (size_t i = 0; i < count; ++i) row[i] = (word >> i & 1) != 0 ? row[i] : kMasked;
    }
  }
}

bool HasPenalties(const SamplingParams& params) {
  return params.repetition_penalty != 1 || params.frequency_penalty != 0 ||
         params.presence_penalty != 0;
}

bool NeedsProcessing(const SamplingParams& params, int64_t num_output_tokens) {
  return HasPenalties(params) || !params.logit_bias.empty() ||
         params.allowed_token_ids.has_value() || !params.bad_words.empty() ||
         num_output_tokens < params.min_tokens;
}

void ProcessLogits(const SamplingParams& params, const TokenHistory& history,
                   std::span<const int32_t> end_tokens, TokenCounts& counts,
                   std::span<float> logits) {
  if (params.allowed_token_ids) MaskAllBut(*params.allowed_token_ids, logits);
  ForEachCompletion(params.bad_words, history.output(),
                    [&](int32_t token) { logits[static_cast<size_t>(token)] = kMasked; });
  if (static_cast<int64_t>(history.output().size()) < params.min_tokens) {
    for (const int32_t token : end_tokens) logits[static_cast<size_t>(token)] = kMasked;
  }
  for (const auto& [token, bias] : params.logit_bias) {
    logits[static_cast<size_t>(token)] += std::clamp(bias, -kLargestBias, kLargestBias);
  }
  if (HasPenalties(params)) {
    counts.Update(history.tokens, history.num_prompt_tokens);
    Penalize(params, counts.entries(), logits);
  }
}

}  // namespace sluice
