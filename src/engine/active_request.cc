#include "engine/active_request.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cache/cache_salt.h"
#include "engine/adapters.h"

namespace sluice {
namespace {

tl::unexpected<Error> Invalid(std::string param, std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message), std::move(param));
}

Status CheckIds(std::span<const int32_t> ids, int64_t vocab_size, const char* param) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      return Invalid(param, fmt::format("{} holds token id {}, but the vocabulary is [0, {})",
                                        param, id, vocab_size));
    }
  }
  return {};
}

Status CheckSampling(const SamplingParams& params, int64_t vocab_size) {
  const auto range = [](const char* param, double value, double low, double high) -> Status {
    if (value >= low && value <= high) return {};  // also refuses NaN
    return Invalid(param, fmt::format("{} must be in [{}, {}], got {}.", param, low, high, value));
  };
  constexpr double kLarge = 1e9;
  RETURN_IF_ERROR(range("temperature", params.temperature, 0, kLarge));
  RETURN_IF_ERROR(range("top_p", params.top_p, 1e-300, 1));
  RETURN_IF_ERROR(range("min_p", params.min_p, 0, 1));
  RETURN_IF_ERROR(range("presence_penalty", params.presence_penalty, -kLarge, kLarge));
  RETURN_IF_ERROR(range("frequency_penalty", params.frequency_penalty, -kLarge, kLarge));
  RETURN_IF_ERROR(range("repetition_penalty", params.repetition_penalty, 1e-30, kLarge));
  if (params.top_k < 0)
    return Invalid("top_k", fmt::format("top_k must be 0 or more, got {}.", params.top_k));
  if (params.max_tokens < 1) {
    return Invalid("max_tokens",
                   fmt::format("max_tokens must be at least 1, got {}.", params.max_tokens));
  }
  if (params.min_tokens < 0) {
    return Invalid("min_tokens",
                   fmt::format("min_tokens must be 0 or more, got {}.", params.min_tokens));
  }
  for (const auto& [token, bias] : params.logit_bias) {
    RETURN_IF_ERROR(CheckIds({&token, 1}, vocab_size, "logit_bias"));
    if (std::isnan(bias))
      return Invalid("logit_bias", fmt::format("logit_bias of token {} is not a number", token));
  }
  if (params.allowed_token_ids) {
    if (params.allowed_token_ids->empty())
      return Invalid("allowed_token_ids", "allowed_token_ids is empty");
    RETURN_IF_ERROR(CheckIds(*params.allowed_token_ids, vocab_size, "allowed_token_ids"));
  }
  for (const auto& word : params.bad_words)
    RETURN_IF_ERROR(CheckIds(word, vocab_size, "bad_words"));
  RETURN_IF_ERROR(CheckIds(params.stop_token_ids, vocab_size, "stop_token_ids"));
  RETURN_IF_ERROR(CheckIds(params.logprob_token_ids, vocab_size, "logprob_token_ids"));
  if (params.logprob_token_ids.size() > kMostLogprobTokens) {
    return Invalid("logprob_token_ids",
                   fmt::format("logprob_token_ids has {} ids, at most {} are allowed",
                               params.logprob_token_ids.size(), kMostLogprobTokens));
  }
  if (params.logprobs && *params.logprobs < -1) {
    return Invalid("logprobs",
                   fmt::format("logprobs must be 0 or more, or -1, got {}.", *params.logprobs));
  }
  if (params.prompt_logprobs && *params.prompt_logprobs < -1) {
    return Invalid(
        "prompt_logprobs",
        fmt::format("prompt_logprobs must be 0 or more, or -1, got {}.", *params.prompt_logprobs));
  }
  return {};
}

// Checks an image. `after`: end of the previous image's tokens.
Status CheckImage(const Request& request, const ImageInput& input, int64_t after,
                  const RequestLimits::Images& limits) {
  if (input.image == nullptr) return Invalid("images", "an image without content");
  const ProcessedImage& image = *input.image;
  const int64_t end = input.position + std::ssize(image.tokens);
  if (input.position < after || end > std::ssize(request.prompt) ||
      !std::equal(image.tokens.begin(), image.tokens.end(),
                  request.prompt.begin() + input.position)) {
    return Invalid("images", fmt::format("the prompt does not contain the tokens of an image at {}",
                                         input.position));
  }
  RETURN_IF_ERROR(ImageTower::Check(*limits.tower, limits.options, image));
  if (image.num_embeddings > limits.max_rows) {
    return Invalid(
        "images",
        fmt::format("an image has {} tokens, but this server has memory for {}; send a smaller one",
                    image.num_embeddings, limits.max_rows));
  }
  const std::vector<uint8_t>& marks = image.is_embedding;
  const int64_t span = marks.rend() - std::find(marks.rbegin(), marks.rend(), 1) -
                       (std::find(marks.begin(), marks.end(), 1) - marks.begin());
  if (!limits.tower->sees_both_ways) return {};
  if (span > limits.max_whole) {
    return Invalid(
        "images",
        fmt::format("an image of {} tokens, which attend to each other, exceeds the {} tokens of a "
                    "step; raise max_num_batched_tokens or send a smaller one",
                    span, limits.max_whole));
  }
  if (request.sampling.prompt_logprobs && span > limits.max_logit_rows) {
    return Invalid(
        "prompt_logprobs",
        fmt::format("prompt_logprobs of an image of {} tokens, which attend to each other, exceed "
                    "the {} rows of logits of a step; omit them or send a smaller image",
                    span, limits.max_logit_rows));
  }
  return {};
}

Status CheckImages(const Request& request, const RequestLimits& limits) {
  if (request.images.empty()) return {};
  if (!limits.images) return Invalid("images", "images are not accepted: " + limits.no_images);
  if (limits.pooling) return Invalid("images", "a pooling model does not accept images");
  int64_t after = 0;
  for (const ImageInput& image : request.images) {
    RETURN_IF_ERROR(CheckImage(request, image, after, *limits.images));
    after = image.position + std::ssize(image.image->tokens);
  }
  return {};
}

Status CheckRows(const Request& request, const RequestLimits& limits) {
  constexpr const char* kParam = "prompt_embeds";
  if (request.rows == nullptr) return {};
  if (limits.row_width == 0)
    return Invalid(kParam, "prompt embeddings are not accepted: " + limits.no_rows);
  const PromptRows& rows = *request.rows;
  if (rows.width != limits.row_width || rows.rows() != std::ssize(request.prompt) ||
      rows.rows() * rows.width != std::ssize(rows.values)) {
    return Invalid(kParam,
                   fmt::format("expected rows of {} numbers for {} tokens, found {} of {}",
                               limits.row_width, request.prompt.size(), rows.rows(), rows.width));
  }
  if (!request.images.empty())
    return Invalid("images", "images cannot be combined with prompt embeddings");
  if (request.sampling.prompt_logprobs)
    return Invalid("prompt_logprobs", "prompt_logprobs is not compatible with prompt embeds.");
  return {};
}

}  // namespace

Status CheckRequest(const Request& request, const RequestLimits& limits) {
  const int64_t length = static_cast<int64_t>(request.prompt.size());
  if (length == 0) return Invalid("prompt", "the prompt is empty; it needs at least one token");
  if (limits.pooling && length > limits.max_model_len) {
    return Invalid("prompt",
                   fmt::format("This model's maximum context length is {} tokens, but the prompt "
                               "has {}; shorten it.",
                               limits.max_model_len, length));
  }
  if (!limits.pooling && length >= limits.max_model_len) {
    return Invalid(
        "prompt",
        fmt::format("This model's maximum context length is {} tokens, but the prompt has {} and "
                    "leaves no room for a token of the answer; shorten the prompt.",
                    limits.max_model_len, length));
  }
  RETURN_IF_ERROR(CheckIds(request.prompt, limits.vocab_size, "prompt"));
  RETURN_IF_ERROR(CheckImages(request, limits));
  RETURN_IF_ERROR(CheckRows(request, limits));
  RETURN_IF_ERROR(CheckSampling(request.sampling, limits.vocab_size));
  RETURN_IF_ERROR(CheckIds(request.end_tokens, limits.vocab_size, "end_tokens"));
  if (request.num_sequences < 1 || request.num_sequences > kMaxSequences) {
    return Invalid(
        "n", fmt::format("n must be in [1, {}], got {}.", kMaxSequences, request.num_sequences));
  }
  if (request.sampling.prompt_logprobs) {
    const int64_t asked = *request.sampling.prompt_logprobs;
    const int64_t kept = std::min(asked < 0 ? limits.vocab_size : asked, limits.vocab_size);
    const int64_t bytes = length * (kept * int64_t{sizeof(std::pair<int32_t, float>)} +
                                    int64_t{sizeof(TokenLogprobs)});
    if (bytes > kMaxPromptLogprobBytes) {
      return Invalid(
          "prompt_logprobs",
          fmt::format("prompt_logprobs of {} for {} prompt tokens take {} MiB, more than the {} "
                      "MiB that a request may use; request fewer or shorten the prompt.",
                      asked, length, bytes >> 20, kMaxPromptLogprobBytes >> 20));
    }
  }
  if (limits.pooling && request.num_sequences != 1)
    return Invalid("n", "a pooling model gives one vector for a prompt: n must be 1.");
  if (request.sink == nullptr) return Fail(ErrorCode::kInternal, "the request has no sink");
  return {};
}

namespace {

// Returns the cache salt of a request. Keys and values depend on the adapter, so the adapter's
// serial number is part of the salt.
std::string CacheSaltOf(const Request& request) {
  CacheSaltParts parts{.client = request.cache_salt, .adapter = {}};
  if (request.adapter != nullptr) {
    parts.adapter = request.adapter->name();
    parts.serial = request.adapter->serial();
  }
  return MakeCacheSalt(parts);
}

// Prepares the request's images. Does not assign their rows in the image pool.
void PrepareImages(const RequestLimits::Images& limits, const ImageHasher& hasher,
                   ActiveRequest& active) {
  const Request& request = active.request;
  std::vector<PlacedImage> placed;
  for (const ImageInput& input : request.images) {
    const ProcessedImage& image = *input.image;
    placed.push_back({input.position, &image});
    active.image_hashes.push_back(hasher.HashOf(image.values, image.hash, request.cache_salt));
    if (!limits.tower->sees_both_ways) continue;
    // Consecutive image rows attend to each other.
    for (size_t i = 0; i < image.is_embedding.size(); ++i) {
      if (image.is_embedding[i] == 0) continue;
      const auto position = static_cast<int32_t>(input.position) + static_cast<int32_t>(i);
      if (i == 0 || image.is_embedding[i - 1] == 0) active.spans.push_back({position, position});
      active.spans.back().end = position + 1;
    }
  }
  if (limits.has_axes)
    active.rope = RopePositions(std::ssize(request.prompt), placed, limits.tower->merge);
}

void PrepareRows(const ImageHasher& hasher, ActiveRequest& active) {
  const PromptRows& rows = *active.request.rows;
  const std::span<const float> values = rows.values;
  for (int64_t first = 0; first < rows.rows(); first += kPromptPart) {
    const int64_t count = std::min(kPromptPart, rows.rows() - first);
    const auto part = values.subspan(static_cast<size_t>(first * rows.width),
                                     static_cast<size_t>(count * rows.width));
    active.row_hashes.push_back(
        hasher.HashOf(part, {static_cast<uint64_t>(count), static_cast<uint64_t>(rows.width)},
                      active.request.cache_salt));
  }
}

}  // namespace

std::unique_ptr<ActiveRequest> MakeActiveRequest(RequestHandle handle, Request request,
                                                 const RequestLimits& limits,
                                                 std::span<const int32_t> model_end_tokens,
                                                 uint64_t seed, bool siblings_wait) {
  auto active = std::make_unique<ActiveRequest>();
  active->handle = handle;
  active->request = std::move(request);
  const Request& asked = active->request;
  const SamplingParams& params = asked.sampling;
  const int64_t length = static_cast<int64_t>(asked.prompt.size());
  if (params.prompt_logprobs) active->prompt.logprobs.resize(asked.prompt.size());
  if (!asked.images.empty()) PrepareImages(*limits.images, *limits.hasher, *active);
  if (asked.rows != nullptr) PrepareRows(*limits.hasher, *active);
  active->num_unfinished = asked.num_sequences;
  active->end_tokens.assign(model_end_tokens.begin(), model_end_tokens.end());
  active->end_tokens.insert(active->end_tokens.end(), asked.end_tokens.begin(),
                            asked.end_tokens.end());
  std::vector<int32_t> ends = active->end_tokens;
  ends.insert(ends.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
  const SharedList<int32_t> end_tokens = std::move(ends);
  const std::string salt = CacheSaltOf(asked);
  const auto constraint_budget = std::make_shared<RequestBudget>();
  for (int i = 0; i < asked.num_sequences; ++i) {
    auto sequence = std::make_unique<ActiveSequence>();
    sequence->request = active.get();
    sequence->index = i;
    sequence->tokens = asked.prompt;
    sequence->num_prompt_tokens = length;
    sequence->max_total_tokens =
        limits.pooling ? length
                       : length + std::min(params.max_tokens, limits.max_model_len - length);
    sequence->priority = asked.priority;
    sequence->client = asked.client;
    sequence->cache_salt = salt;
    // With CLS pooling the first token's result is needed, so it must be computed.
    sequence->read_prefix_cache = asked.use_prefix_cache && limits.pooling != PoolingMethod::kCls;
    sequence->wants_all_rows =
        limits.pooling == PoolingMethod::kMean || (i == 0 && params.prompt_logprobs && length > 1);
    if (i > 0 && siblings_wait) sequence->leader = active->sequences.front().get();
    sequence->sampling.params = &params;
    sequence->sampling.seed =
        (params.seed ? static_cast<uint64_t>(*params.seed) : seed) + static_cast<uint64_t>(i);
    sequence->sampling.end_tokens = end_tokens;
    if (asked.rows != nullptr) sequence->sampling.counts.Skip(asked.prompt.size());
    if (asked.constraint != nullptr) {
      sequence->sampling.matcher =
          std::make_shared<SequenceMatcher>(asked.constraint->NewMatcher(), constraint_budget);
    }
    active->sequences.push_back(std::move(sequence));
  }
  return active;
}

}  // namespace sluice
