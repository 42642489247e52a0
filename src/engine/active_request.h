// A request inside the engine, with its sequences.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/drafter.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "models/tower/image_tower.h"
#include "models/tower/rope_positions.h"
#include "sampler/sampler.h"
#include "scheduler/scheduled_sequence.h"
#include "speculation/proposer.h"

namespace sluice {

using Clock = std::chrono::steady_clock;

inline double SecondsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

struct ActiveRequest;

// One of a request's n sequences.
struct ActiveSequence : ScheduledSequence {
  ActiveRequest* request = nullptr;
  int index = 0;  // [0, n)
  SequenceSampling sampling;
  SequenceProposals proposals;
  DraftSequence draft;
  std::vector<double> pooled;          // the sum of the wanted rows so far, where the model pools
  std::optional<FinishReason> finish;  // once it has ended
  int64_t num_prompt_counted = 0;      // of its prompt, in StepStats
  // The index of the draw in the step that began last, if that step draws the sequence's token and
  // num_drawn counts it.
  int32_t last_draw = 0;
  Clock::time_point last_update{};  // of its last token

  int64_t num_output_tokens() const {
    return static_cast<int64_t>(tokens.size()) - num_prompt_tokens;
  }
};

// Ownership: the engine holds it from Submit to its end; it owns its sequences, which point back at
// it.
struct ActiveRequest {
  RequestHandle handle = 0;
  Request request;
  std::vector<int32_t> end_tokens;  // of the model and of the request
  std::vector<std::unique_ptr<ActiveSequence>> sequences;
  int num_unfinished = 0;
  bool ended = false;  // its sink is not called any more
  int num_slices_in_flight = 0;
  // For its images: what each is known by, the positions of all tokens on the axes of rope, and the
  // tokens that see each other.
  std::vector<ImageHash> image_hashes;
  RopePositions rope;
  std::vector<kernels::SeenSpan> spans;
  bool holds_images = false;  // in the engine's ImagePool
  // Likewise of the rows that are its prompt, kPromptPart a part; the ids while the engine has it.
  std::vector<ImageHash> row_hashes;
  std::vector<ImageId> row_ids;
  PromptResult prompt;
  bool prompt_sent = false;
  int64_t num_generated = 0;
  std::optional<Clock::time_point> first_scheduled, first_token, last_token;
};

// Rows of a prompt (Request::rows) that the prefix index knows by one id.
inline constexpr int64_t kPromptPart = 128;

// What CheckRequest compares a request with.
struct RequestLimits {
  int64_t vocab_size = 0;
  int64_t max_model_len = 0;
  std::optional<PoolingMethod> pooling = std::nullopt;  // none: room is left for a token
  // Where prompts may hold images; else null, and why.
  struct Images {
    const TowerSpec* tower = nullptr;
    TowerOptions options;
    int64_t max_rows = 0;        // of an image
    int64_t max_whole = 0;       // tokens of an image that see each other
    int64_t max_logit_rows = 0;  // of those where the logprobs of the prompt are asked for
    bool has_axes = false;       // rope turns with rows and columns
  };
  std::optional<Images> images = std::nullopt;
  std::string no_images = {};
  // Likewise where prompts may be rows (EngineInfo::prompt_row_width).
  int64_t row_width = 0;
  std::string no_rows = {};
  // Hashes the content of images and rows. Not null where there are any.
  const ImageHasher* hasher = nullptr;
};

// kInvalidArgument, naming the field: an empty prompt or one that leaves no room for a token, ids
// outside the vocabulary, numbers out of range, or more prompt logprobs than the engine keeps
// (kMaxPromptLogprobBytes).
Status CheckRequest(const Request& request, const RequestLimits& limits);

inline constexpr int64_t kMaxPromptLogprobBytes = int64_t{256} << 20;

// Creates the sequences. `model_end_tokens` are the end-of-sequence tokens of the model; `seed` is
// that of a request without one. With `siblings_wait`, all sequences wait until the first has
// computed the prompt. REQUIRES: CheckRequest passed.
std::unique_ptr<ActiveRequest> MakeActiveRequest(RequestHandle handle, Request request,
                                                 const RequestLimits& limits,
                                                 std::span<const int32_t> model_end_tokens,
                                                 uint64_t seed, bool siblings_wait);

}  // namespace sluice
