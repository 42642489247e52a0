// What a model that draws tokens is asked to do to rows of logits: the lists, masks and settings of
// DrawExtras (kernels/draw_settings.h), so that Sampler's token comes of it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/draw_settings.h"
#include "sampler/sampler.h"

namespace sluice {

// Whether a sequence's next draw depends on the tokens that it has, not only on their number. One
// whose does not can go on while its last token is not known.
bool DrawNeedsHistory(const SequenceSampling& sequence);

// One token to draw.
struct DrawJob {
  SequenceSampling* sequence = nullptr;
  TokenHistory history;
  int64_t num_output_tokens = 0;  // with those that are drawn and not in `history` yet
  int64_t row = 0;                // the caller's
  // Out. False: the host has to draw, as the row asks for more than there is room for, or its
  // constraint cannot be followed in this step.
  bool is_possible = false;
  kernels::DrawSettings settings = {};
  kernels::DrawExtras extras = {};
};

// Ownership: owns the words of the lists and masks. Allocates as Sampler does. Thread safety: one
// call at a time.
class DrawPlanner {
 public:
  // `most_words` of a step; `most_top` logits beside a token's.
  DrawPlanner(int64_t vocab_size, int64_t most_words, int32_t most_top);

  // `words()` are those of the jobs until the next call. What a job is told does not depend on the
  // others, but for the room that those before it take.
  void Plan(ThreadPool& pool, std::span<DrawJob> jobs);
  std::span<const uint32_t> words() const {
    return std::span(words_).first(static_cast<size_t>(num_words_));
  }

 private:
  // Brings the sequence's matcher and counts up to date.
  static void Look(DrawJob& job);
  // Gives the job its places in the words.
  void Place(DrawJob& job);
  // Fills them.
  void Fill(DrawJob& job);
  // The bits of allowed_token_ids, within those of the constraint.
  void FillAllowed(const SamplingParams& params, const kernels::DrawExtras& extras);
  // False where a token has several biases, whose sum would be rounded otherwise.
  bool FillBiases(DrawJob& job);
  std::span<uint32_t> WordsAt(int64_t first, int64_t count) {
    return std::span(words_).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  }

  const int64_t vocab_size_, mask_words_;
  const int32_t most_top_;
  std::vector<uint32_t> words_;
  int64_t num_words_ = 0;
};

}  // namespace sluice
