#include "sampler/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/block_maxima.h"
#include "kernels/sampling.h"
#include "kernels/work_queue.h"
#include "sampler/philox.h"

namespace sluice {
namespace {

constexpr std::string_view kNotANumber =
    "the model's logits contain NaN: the weights are damaged or the computation overflowed";
constexpr std::string_view kNoFiniteLogit =
    "the largest of the model's logits is not finite: the weights are damaged or the computation "
    "overflowed";
constexpr std::string_view kNothingAllowed =
    "no token is left to choose: allowed_token_ids, bad_words, min_tokens, logit_bias and the "
    "constraint together exclude them all";
// Returns the index of the largest logit. `maxima`: maximum of each block of logits; may be empty.
int32_t Largest(std::span<const float> logits, std::span<const float> maxima) {
  return maxima.empty() ? kernels::ArgMax(logits) : kernels::ArgMaxByBlocks(logits, maxima);
}

// Whether the constraint can be followed in this step. If not, sets the reason in the job.
bool Follows(SampleJob& job, SequenceMatcher::Answer answer) {
  job.is_late = answer == SequenceMatcher::Answer::kLate;
  if (answer == SequenceMatcher::Answer::kNo) {
    job.error = job.sequence->matcher->error();
    job.is_request_error = true;
  }
  return answer == SequenceMatcher::Answer::kYes;
}

// Fills `out` with logprobs or, unless `normalize`, with logits: for the `listed` tokens if there
// are any, else for the `num_top` best ones.
void FillLogprobs(std::span<const float> logits, int32_t token, int32_t num_top,
                  std::span<const int32_t> listed, bool normalize, TokenLogprobs& out) {
  float offset_high = 0;
  float offset_low = 0;
  if (normalize) {
    const kernels::LogSumExp sum = kernels::ComputeLogSumExp(logits);
    offset_high = sum.largest;
    offset_low = sum.log_sum;
  }
  const auto logprob = [&](float logit) { return logit - offset_high - offset_low; };
  const float logit = logits[static_cast<size_t>(token)];
  out.token = token;
  out.logprob = logprob(logit);
  out.rank = kernels::CountGreater(logits, logit) + 1;
  if (listed.empty()) {
    kernels::TopK(logits, num_top < 0 ? static_cast<int>(logits.size()) : num_top, out.top);
  } else {
    out.top.clear();
    for (const int32_t id : listed) out.top.emplace_back(id, logits[static_cast<size_t>(id)]);
  }
  for (auto& entry : out.top) entry.second = logprob(entry.second);
}

// Computes the logits from which a token was drawn: divided by the temperature, and minus infinity
// where `weights`, which DrawToken left, are 0.
void MakeDrawn(std::span<const float> logits, const SamplingParams& params,
               std::span<const float> weights, std::span<float> drawn) {
  const float scale = ScaleOf(params);
  const bool cuts = params.top_k > 0 || params.top_p < 1 || params.min_p > 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const bool gone = cuts && weights[i] == 0;
    drawn[i] = gone ? -std::numeric_limits<float>::infinity() : logits[i] * scale;
  }
}

}  // namespace

void SetDrawn(SampleJob& job, int32_t token, kernels::DrawError error,
              const kernels::DrawnLogprobs& logprobs, std::span<const kernels::TopLogit> top) {
  using kernels::DrawError;
  job.is_drawn = true;
  job.is_late = false;
  job.token = token;
  job.error = {};
  job.is_request_error = error == DrawError::kNothingAllowed;
  if (error == DrawError::kNan) job.error = kNotANumber;
  if (error == DrawError::kNoFiniteLogit) job.error = kNoFiniteLogit;
  if (error == DrawError::kNothingAllowed) job.error = kNothingAllowed;
  const SamplingParams& params = *job.sequence->params;
  if (!job.error.empty() || !params.logprobs) return;
  const bool normalize = IsNormalized(params.logprobs_mode);
  const float offset_high = normalize ? logprobs.largest : 0;
  const float offset_low = normalize ? static_cast<float>(std::log(logprobs.sum)) : 0;
  const auto logprob = [&](float logit) { return logit - offset_high - offset_low; };
  job.logprobs.token = token;
  job.logprobs.logprob = logprob(logprobs.chosen);
  job.logprobs.rank = static_cast<int32_t>(logprobs.rank);
  job.logprobs.top.clear();
  for (const kernels::TopLogit& entry : top)
    job.logprobs.top.emplace_back(entry.token, logprob(entry.logit));
}

Sampler::Scratch::Scratch(int64_t vocab_size)
    : processed(static_cast<size_t>(vocab_size)),
      constrained(static_cast<size_t>(vocab_size)),
      mask(MaskWords(vocab_size)),
      draw(vocab_size) {}

Sampler::Sampler(int64_t vocab_size, int num_threads) {
  for (int i = 0; i < num_threads; ++i) scratch_.push_back(std::make_unique<Scratch>(vocab_size));
}

int64_t Sampler::ScratchBytes(int64_t vocab_size, int num_threads) {
  const int64_t a_token = 3 * int64_t{sizeof(float)} + int64_t{sizeof(std::pair<int32_t, float>)};
  const int64_t mask = static_cast<int64_t>(MaskWords(vocab_size) * sizeof(uint32_t));
  const int64_t sums = kernels::NumDrawBlocks(vocab_size) * int64_t{sizeof(double)};
  return num_threads * (vocab_size * a_token + mask + sums + int64_t{sizeof(Scratch)});
}

void Sampler::Sample(ThreadPool& pool, std::span<SampleJob> jobs) {
  CHECK_LE(static_cast<size_t>(pool.num_threads()), scratch_.size());
  kernels::ForEachUnit(pool, static_cast<int64_t>(jobs.size()), [&](int64_t job, int thread) {
    SampleOne(jobs[static_cast<size_t>(job)], *scratch_[static_cast<size_t>(thread)]);
  });
}

SequenceMatcher::Answer Sampler::TakesLargest(SampleJob& job) {
  const int32_t best = Largest(job.logits, job.maxima);
  if (!std::isfinite(job.logits[static_cast<size_t>(best)])) return SequenceMatcher::Answer::kNo;
  const SequenceMatcher::Answer answer = job.sequence->matcher->Advance(best);
  if (answer == SequenceMatcher::Answer::kYes) job.token = best;
  return answer;
}

std::span<const float> Sampler::Constrain(SampleJob& job, Scratch& scratch) {
  if (!Follows(job, job.sequence->matcher->FillMask(scratch.mask))) return {};
  std::copy(job.logits.begin(), job.logits.end(), scratch.constrained.begin());
  MaskByBits(scratch.mask, scratch.constrained);
  return scratch.constrained;
}

void Sampler::SampleOne(SampleJob& job, Scratch& scratch) const {
  if (job.is_drawn) return;
  const SamplingParams& params = *job.sequence->params;
  job.token = -1;
  job.error = {};
  job.is_request_error = false;
  job.is_late = false;
  if (kernels::HasNan(job.maxima.empty() ? job.logits : job.maxima)) {
    job.error = kNotANumber;
    return;
  }
  SequenceMatcher* const matcher = job.sequence->matcher.get();
  if (matcher != nullptr && !Follows(job, matcher->CatchUp(job.history.output()))) return;
  const bool constrained = matcher != nullptr && !matcher->is_finished();
  const bool processed = NeedsProcessing(params, std::ssize(job.history.output()));
  // If the largest of all logits is allowed, no mask is needed.
  if (constrained && params.temperature == 0 && !processed && !params.logprobs &&
      !matcher->has_mask()) {
    const SequenceMatcher::Answer taken = TakesLargest(job);
    job.is_late = taken == SequenceMatcher::Answer::kLate;
    if (taken != SequenceMatcher::Answer::kNo) return;
  }
  const std::span<const float> raw_logits = constrained ? Constrain(job, scratch) : job.logits;
  if (raw_logits.empty()) return;
  std::span<const float> logits = raw_logits;
  if (processed) {
    std::span<const int32_t> end_tokens = job.sequence->end_tokens;
    if (constrained && static_cast<int64_t>(job.history.output().size()) < params.min_tokens &&
        AllowsOnly(end_tokens, scratch.mask))
      end_tokens = {};
    std::copy(logits.begin(), logits.end(), scratch.processed.begin());
    ProcessLogits(params, job.history, end_tokens, job.sequence->counts, scratch.processed);
    logits = scratch.processed;
  }
  const bool is_raw = logits.data() == job.logits.data();
  const std::span<const float> maxima = is_raw ? job.maxima : std::span<const float>();
  const int32_t best = Largest(logits, maxima);
  const float largest = logits[static_cast<size_t>(best)];
  if (!std::isfinite(largest)) {
    job.is_request_error = (processed || constrained) && largest < 0;
    job.error = job.is_request_error ? kNothingAllowed : kNoFiniteLogit;
    return;
  }
  if (params.temperature == 0) {
    job.token = best;
  } else {
    const double uniform = UniformAt(job.sequence->seed, job.history.output().size());
    job.token = DrawToken(logits, largest, params, uniform, scratch.draw, maxima);
  }
  if (!params.logprobs) return;
  if (IsRaw(params.logprobs_mode)) {
    logits = raw_logits;
  } else if (params.temperature != 0) {
    MakeDrawn(logits, params, scratch.draw.weights, scratch.processed);
    logits = scratch.processed;
  }
  FillLogprobs(logits, job.token, *params.logprobs, params.logprob_token_ids,
               IsNormalized(params.logprobs_mode), job.logprobs);
}

void Sampler::PromptLogprobs(ThreadPool& pool, std::span<PromptLogprobJob> jobs) {
  kernels::ForEachUnit(pool, static_cast<int64_t>(jobs.size()), [&](int64_t index, int) {
    PromptLogprobJob& job = jobs[static_cast<size_t>(index)];
    job.error = kernels::HasNan(job.logits) ? kNotANumber : std::string_view();
    if (job.error.empty()) FillLogprobs(job.logits, job.token, job.num_top, {}, true, job.logprobs);
  });
}

}  // namespace sluice
