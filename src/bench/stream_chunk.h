// Reads the fields that a load generator needs from one event of a stream of completions. Does not
// build a tree of values, because a client that measures thousands of tokens per second must be
// fast.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace sluice::bench {

struct StreamChunk {
  bool has_choices = false;  // "choices" is present and not empty
  std::string_view text;     // of the first choice
  bool has_usage = false;    // "usage" is an object
  std::optional<int64_t> prompt_tokens, completion_tokens;
  bool has_error = false;  // "error" is present and not null
};

// Returns false if `json` is not a JSON object. Works for events, and for whole bodies of answers
// without streaming. `chunk.text` is valid until the thread's next call. Thread safety: any.
bool ScanChunk(std::string_view json, StreamChunk& chunk);

}  // namespace sluice::bench
