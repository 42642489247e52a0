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
  std::vector<double> pooled;          // if the model pools: sum of the result rows computed so far
  std::optional<FinishReason> finish;  // set once it has ended
  int64_t num_prompt_counted = 0;      // prompt tokens counted in StepStats so far
  // Index of this sequence's draw in the step that was begun last. Valid if that step draws the
  // sequence's token, so that num_drawn counts it.
  int32_t last_draw = 0;
  Clock::time_point last_update{};  // time of its last token

  int64_t num_output_tokens() const {
    return static_cast<int64_t>(tokens.size()) - num_prompt_tokens;
  }
};

// A request in the engine. Ownership: the engine owns it from Submit until it ends; it owns its
// sequences, which point back to it.
struct ActiveRequest {
  RequestHandle handle = 0;
  Request request;
  std::vector<int32_t> end_tokens;  // end tokens of the model and of the request
  std::vector<std::unique_ptr<ActiveSequence>> sequences;
  int num_unfinished = 0;
  bool ended = false;  // whether it has ended, after which its sink is not called
  int num_slices_in_flight = 0;
  // If it has images: the hash of each, the RoPE positions of all tokens on each axis, and the
  // spans of tokens that attend to each other.
  std::vector<ImageHash> image_hashes;
  RopePositions rope;
  std::vector<kernels::SeenSpan> spans;
  bool holds_images = false;  // whether its images are in the engine's ImagePool
  // For a prompt of rows (Request::rows), one entry per kPromptPart rows: its hash, and its id
  // while the engine stores it.
  std::vector<ImageHash> row_hashes;
  std::vector<ImageId> row_ids;
  PromptResult prompt;
  bool prompt_sent = false;
  int64_t num_generated = 0;
  std::optional<Clock::time_point> first_scheduled, first_token, last_token;
};

// Number of rows of a prompt (Request::rows) that share one id in the prefix index.
inline constexpr int64_t kPromptPart = 128;

// The limits that CheckRequest applies.
struct RequestLimits {
  int64_t vocab_size = 0;
  int64_t max_model_len = 0;
  std::optional<PoolingMethod> pooling = std::nullopt;  // nullopt: leave room for a token
  // nullopt if prompts may not contain images; no_images gives the reason.
  struct Images {
    const TowerSpec* tower = nullptr;
    TowerOptions options;
    int64_t max_rows = 0;        // maximum per image
    int64_t max_whole = 0;       // maximum number of tokens of an image that attend to each other
    int64_t max_logit_rows = 0;  // the same limit for requests with prompt logprobs
    bool has_axes = false;       // RoPE has an axis each for rows and columns
  };
  std::optional<Images> images = std::nullopt;
  std::string no_images = {};
  // Width of a row; 0 if prompts may not be rows (EngineInfo::prompt_row_width). no_rows contains
  // the reason.
  int64_t row_width = 0;
  std::string no_rows = {};
  // Hashes the content of images and rows. Not null if prompts may contain either.
  const ImageHasher* hasher = nullptr;
};

// Returns kInvalidArgument, with the name of the field, if the prompt is empty or leaves no room
// for a token, if an id is outside the vocabulary, or if a number is out of range. Also if more
// prompt logprobs are requested than the engine stores (kMaxPromptLogprobBytes).
Status CheckRequest(const Request& request, const RequestLimits& limits);

inline constexpr int64_t kMaxPromptLogprobBytes = int64_t{256} << 20;

// Creates the sequences. `model_end_tokens`: the model's end-of-sequence tokens. `seed`: for a
// request without one. `siblings_wait`: whether all other sequences wait until the first has
// computed the prompt. REQUIRES: CheckRequest passed.
std::unique_ptr<ActiveRequest> MakeActiveRequest(RequestHandle handle, Request request,
                                                 const RequestLimits& limits,
                                                 std::span<const int32_t> model_end_tokens,
                                                 uint64_t seed, bool siblings_wait);

}  // namespace sluice
