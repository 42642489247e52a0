// Reads what a load generator needs from one event of a stream of completions, without building a
// JSON value: a client that measures thousands of tokens a second must not be busy itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::bench {

struct StreamChunk {
  bool has_choices = false;  // "choices" is there and not empty
  std::string_view text;     // of the first choice, as JSON escapes it, without its quotes
  bool has_usage = false;    // "usage" is an object
  std::optional<int64_t> prompt_tokens, completion_tokens;
  std::string_view error;  // the JSON of "error", if there is one
};

// False if `json` is no JSON object. Views point into `json`. Works for events, and for whole
// bodies of answers without a stream.
bool ScanChunk(std::string_view json, StreamChunk& chunk);

// The text of the inside of a JSON string.
std::string UnescapeJson(std::string_view escaped);

}  // namespace sluice::bench
