// The fields that completions and chats share: sampling, stop conditions, and contents of the
// answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/api/common/endpoint_kind.h"
#include "server/api/common/field_reader.h"
#include "server/api/request/constraint_fields.h"
#include "server/api/request/repetition.h"

namespace sluice {

// The values in a request. Types have been checked, ranges have not.
struct SamplingFields {
  std::optional<std::string> model;
  int64_t n = 1;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k, seed;
  double presence_penalty = 0, frequency_penalty = 0;
  std::vector<std::string> stop;
  std::vector<int64_t> stop_token_ids;
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
  int64_t min_tokens = 0;
  std::optional<int64_t> max_tokens;
  std::string max_tokens_name = "max_tokens";  // name of the field that set max_tokens
  std::optional<int64_t> logprobs;             // number of alternatives; -1: the whole vocabulary
  std::optional<int64_t> prompt_logprobs;
  std::optional<std::vector<int64_t>> logprob_token_ids;  // listed instead of the most likely
                                                          // tokens
  std::vector<std::pair<std::string, double>> logit_bias;
  std::optional<std::vector<int64_t>> allowed_token_ids;
  std::vector<std::string> bad_words;

  bool skip_special_tokens = true;
  std::optional<int64_t> truncate_prompt_tokens;
  // Whether texts that are too long are refused even if the model truncates them by default.
  bool refuses_long_texts = false;
  std::optional<std::string>
      truncation_side;  // "left" or "right"; absent: the default side. Special tokens are kept.
  int64_t priority = 0;
  std::string cache_salt;
  std::optional<std::string> request_id;
  bool stream = false;
  bool include_usage = false, continuous_usage_stats = false;
  int64_t stream_interval = 1;  // number of tokens per event
  RepetitionRule repetition;
  std::optional<RequestedConstraint> constraint;
  bool use_beam_search = false;  // whether to search beams; n is the width
  double length_penalty = 1.0;
  bool return_token_ids = false;
  bool return_tokens_as_token_ids = false;
};

// Checks combinations of fields that vLLM checks before it reads types. Errors: 400. REQUIRES:
// `body` is an object.
ApiStatus CheckRawFields(const json::Value& body, EndpointKind kind);

// Reads all fields except the constraint (constraint_fields.h), max_tokens, logprobs and the fields
// that belong to logprobs, because their meaning differs between completions and chats.
SamplingFields ReadSamplingFields(FieldReader& reader, const ServerConfig& config);

}  // namespace sluice
