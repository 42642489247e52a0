// Reads what a load generator needs from one event of a stream of completions, without building a
// tree of values: a client that measures thousands of tokens a second must not be busy itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace sluice::bench {

struct StreamChunk {
  bool has_choices = false;  // "choices" is there and not empty
  std::string_view text;     // of the first choice
  bool has_usage = false;    // "usage" is an object
  std::optional<int64_t> prompt_tokens, completion_tokens;
  bool has_error = false;  // "error" is there and not null
};

// False if `json` is no JSON object. Works for events, and for whole bodies of answers without a
// stream. `chunk.text` is valid until the thread's next call. Thread safety: any.
bool ScanChunk(std::string_view json, StreamChunk& chunk);

}  // namespace sluice::bench
