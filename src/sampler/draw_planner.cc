#include "sampler/draw_planner.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/work_queue.h"
#include "sampler/philox.h"

namespace sluice {
namespace {

bool IsConstrained(const SequenceSampling& sequence) {
  return sequence.matcher != nullptr && !sequence.matcher->is_finished();
}

bool IsBeforeMinTokens(const DrawJob& job) {
  return job.num_output_tokens < job.sequence->params->min_tokens;
}

// Upper bound of the number of entries in DrawExtras::biases.
int64_t MostBiases(const DrawJob& job) {
  const SamplingParams& params = *job.sequence->params;
  const auto ends = IsBeforeMinTokens(job) ? std::ssize(job.sequence->end_tokens) : 0;
  return std::ssize(params.bad_words) + ends + std::ssize(params.logit_bias);
}

}  // namespace

bool DrawNeedsHistory(const SequenceSampling& sequence) {
  const SamplingParams& params = *sequence.params;
  return IsConstrained(sequence) || HasPenalties(params) ||
         std::ranges::any_of(params.bad_words, [](const auto& word) { return word.size() > 1; });
}

DrawPlanner::DrawPlanner(int64_t vocab_size, int64_t most_words, int32_t most_top)
    : vocab_size_(vocab_size),
      mask_words_(static_cast<int64_t>(MaskWords(vocab_size))),
      most_top_(most_top),
      words_(static_cast<size_t>(most_words)) {}

void DrawPlanner::Plan(ThreadPool& pool, std::span<DrawJob> jobs) {
  const auto for_each = [&](const auto& visit) {
    kernels::ForEachUnit(pool, std::ssize(jobs),
                         [&](int64_t i, int /*thread*/) { visit(jobs[static_cast<size_t>(i)]); });
  };
  bool any_words = false;
  num_words_ = 0;
  for (DrawJob& job : jobs) {
    job.is_possible = true;
    job.settings =
        DrawSettingsOf(*job.sequence->params,
                       UniformAt(job.sequence->seed, static_cast<uint64_t>(job.num_output_tokens)));
    job.extras = {};
    job.extras.is_changed = IsConstrained(*job.sequence) ||
                            NeedsProcessing(*job.sequence->params, job.num_output_tokens);
    any_words = any_words || job.extras.is_changed != 0;
    const SamplingParams& params = *job.sequence->params;
    if (!params.logprobs) continue;
    const int64_t num_top =
        *params.logprobs < 0 ? vocab_size_ : std::min<int64_t>(*params.logprobs, vocab_size_);
    job.is_possible = most_top_ > 0 && num_top <= most_top_ && params.logprob_token_ids.empty();
    job.extras.logprobs =
        IsRaw(params.logprobs_mode) ? kernels::LogprobsOf::kRaw : kernels::LogprobsOf::kDrawn;
    job.extras.num_top = job.is_possible ? static_cast<int32_t>(num_top) : 0;
  }
  if (!any_words) return;
  for_each([](DrawJob& job) { Look(job); });
  for (DrawJob& job : jobs) Place(job);
  for_each([this](DrawJob& job) { Fill(job); });
}

void DrawPlanner::Look(DrawJob& job) {
  if (!job.is_possible || job.extras.is_changed == 0) return;
  SequenceSampling& sequence = *job.sequence;
  const bool is_known = std::ssize(job.history.output()) == job.num_output_tokens;
  if (DrawNeedsHistory(sequence) && !is_known) {
    job.is_possible = false;
    return;
  }
  if (sequence.matcher != nullptr) {
    job.is_possible =
        sequence.matcher->CatchUp(job.history.output()) == SequenceMatcher::Answer::kYes;
    job.extras.is_changed =
        IsConstrained(sequence) || NeedsProcessing(*sequence.params, job.num_output_tokens);
  }
  if (HasPenalties(*sequence.params))
    sequence.counts.Update(job.history.tokens, job.history.num_prompt_tokens);
}

void DrawPlanner::Place(DrawJob& job) {
  if (!job.is_possible || job.extras.is_changed == 0) return;
  const SequenceSampling& sequence = *job.sequence;
  const SamplingParams& params = *sequence.params;
  const bool is_constrained = IsConstrained(sequence),
             has_list = params.allowed_token_ids.has_value();
  const int64_t num_counts = HasPenalties(params) ? std::ssize(sequence.counts.entries()) : 0;
  const int64_t num_biases = MostBiases(job);
  const int64_t wanted = (is_constrained ? mask_words_ : 0) + (has_list ? mask_words_ : 0) +
                         2 * (num_counts + num_biases);
  if (wanted > std::ssize(words_) - num_words_) {
    job.is_possible = false;
    return;
  }
  const auto take = [this](int64_t count) {
    const int64_t first = num_words_;
    num_words_ += count;
    return static_cast<int32_t>(first);
  };
  kernels::DrawExtras& extras = job.extras;
  if (is_constrained) extras.mask = extras.draw_mask = take(mask_words_);
  if (has_list) extras.draw_mask = take(mask_words_);
  extras.biases = take(2 * num_biases);
  extras.num_biases = static_cast<int32_t>(num_biases);
  extras.counts = take(2 * num_counts);
  extras.num_counts = static_cast<int32_t>(num_counts);
}

void DrawPlanner::Fill(DrawJob& job) {
  kernels::DrawExtras& extras = job.extras;
  if (!job.is_possible || extras.is_changed == 0) return;
  SequenceSampling& sequence = *job.sequence;
  const SamplingParams& params = *sequence.params;
  if (extras.mask >= 0 && sequence.matcher->FillMask(WordsAt(extras.mask, mask_words_)) !=
                              SequenceMatcher::Answer::kYes) {
    job.is_possible = false;
    return;
  }
  if (params.allowed_token_ids) FillAllowed(params, extras);
  if (!FillBiases(job)) {
    job.is_possible = false;
    return;
  }
  if (extras.num_counts == 0) return;
  extras.repetition = static_cast<float>(params.repetition_penalty);
  extras.frequency = static_cast<float>(params.frequency_penalty);
  extras.presence = static_cast<float>(params.presence_penalty);
  uint32_t* next = words_.data() + extras.counts;
  for (const TokenCounts::Entry& entry : sequence.counts.entries()) {
    *next++ = static_cast<uint32_t>(entry.token);
    *next++ = static_cast<uint32_t>(entry.in_output);
  }
}

void DrawPlanner::FillAllowed(const SamplingParams& params, const kernels::DrawExtras& extras) {
  const std::span<uint32_t> bits = WordsAt(extras.draw_mask, mask_words_);
  std::ranges::fill(bits, 0);
  for (const int32_t token : *params.allowed_token_ids)
    bits[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
  if (extras.mask < 0) return;
  const std::span<const uint32_t> outer = WordsAt(extras.mask, mask_words_);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] &= outer[i];
}

bool DrawPlanner::FillBiases(DrawJob& job) {
  struct Entry {
    uint32_t token, bias;
  };
  constexpr float kRemoved = -std::numeric_limits<float>::infinity();
  kernels::DrawExtras& extras = job.extras;
  const SamplingParams& params = *job.sequence->params;
  auto* const first = reinterpret_cast<Entry*>(words_.data() + extras.biases);
  Entry* end = first;
  const auto add = [&](int32_t token, float bias) {
    *end++ = {static_cast<uint32_t>(token), std::bit_cast<uint32_t>(bias)};
  };
  const auto remove = [&](int32_t token) { add(token, kRemoved); };
  ForEachCompletion(params.bad_words, job.history.output(), remove);
  if (IsBeforeMinTokens(job)) {
    const std::span<const int32_t> ends = job.sequence->end_tokens;
    // A constraint that allows nothing else takes precedence over min_tokens.
    const bool is_overruled =
        extras.mask >= 0 && AllowsOnly(ends, WordsAt(extras.mask, mask_words_));
    if (!is_overruled) std::ranges::for_each(ends, remove);
  }
  for (const auto& [token, bias] : params.logit_bias)
    add(token, std::clamp(bias, -kLargestBias, kLargestBias));
  // The removal of a token must precede its biases. Compared as bits, minus infinity is greater
  // than all biases.
  std::sort(first, end, [](const Entry& a, const Entry& b) {
    return a.token != b.token ? a.token < b.token : a.bias > b.bias;
  });
  Entry* kept = first;
  for (const Entry* entry = first; entry != end; ++entry) {
    if (kept != first && kept[-1].token == entry->token) {
      if (kept[-1].bias != std::bit_cast<uint32_t>(kRemoved)) return false;
      continue;
    }
    *kept++ = *entry;
  }
  extras.num_biases = static_cast<int32_t>(kept - first);
  return true;
}

}  // namespace sluice
