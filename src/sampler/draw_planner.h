// Prepares the lists, masks and settings of DrawExtras (kernels/draw_settings.h) for a model that
// draws tokens itself, so that it draws the same tokens as Sampler.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/draw_settings.h"
#include "sampler/sampler.h"

namespace sluice {

// Whether a sequence's next draw depends on which tokens came before, not only on their number. If
// not, the sequence can continue while its last token is still unknown.
bool DrawNeedsHistory(const SequenceSampling& sequence);

// A token to draw.
struct DrawJob {
  SequenceSampling* sequence = nullptr;
  TokenHistory history;
  int64_t num_output_tokens = 0;  // includes tokens that are drawn but not yet in `history`
  int64_t row = 0;                // not used here, only by the caller
  // Result. False: the host must draw, because the row needs more space than there is, or its
  // constraint cannot be followed in this step.
  bool is_possible = false;
  kernels::DrawSettings settings = {};
  kernels::DrawExtras extras = {};
};

// Ownership: owns the words of the lists and masks. Allocates memory in the same cases as Sampler.
// Thread safety: one call at a time.
class DrawPlanner {
 public:
  // `most_words`: maximum number of words per step. `most_top`: maximum number of top logits per
  // token.
  DrawPlanner(int64_t vocab_size, int64_t most_words, int32_t most_top);

  // Plans the draws of a step. `words()` contains the jobs' lists and masks until the next call.
  // Other jobs change a job's result only if they leave too little space for it (is_possible).
  void Plan(ThreadPool& pool, std::span<DrawJob> jobs);
  std::span<const uint32_t> words() const {
    return std::span(words_).first(static_cast<size_t>(num_words_));
  }

 private:
  // Updates the sequence's matcher and counts.
  static void Look(DrawJob& job);
  // Assigns to the job its part of the words.
  void Place(DrawJob& job);
  // Fills the job's part.
  void Fill(DrawJob& job);
  // Sets the bits of allowed_token_ids, restricted to those that the constraint allows.
  void FillAllowed(const SamplingParams& params, const kernels::DrawExtras& extras);
  // Returns false if a token has several biases, whose sum would be rounded differently.
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
