// Reads the fields that a load generator needs from one event of a completions stream. Does not
// build a tree of values, because a client that measures thousands of tokens per second must be
// fast.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace sluice::bench {

struct StreamChunk {
  bool has_choices = false;  // whether "choices" is present and not empty
  std::string_view text;     // text of the first choice
  bool has_usage = false;    // whether "usage" is an object
  std::optional<int64_t> prompt_tokens, completion_tokens;
  bool has_error = false;  // whether "error" is present and not null
};

// Reads an event, or the whole body of an answer that is not streamed. Returns false if `json` is
// not a JSON object. `chunk.text` is valid until the thread's next call. Thread safety: any thread.
bool ScanChunk(std::string_view json, StreamChunk& chunk);

}  // namespace sluice::bench
