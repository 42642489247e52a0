// The line that --enable-log-outputs logs for each choice of an answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/api/common/answer_event.h"

namespace sluice {

// `limit`: maximum number of characters to log (--max-log-len); -1: all.
struct OutputLog {
  std::string unlogged;  // text from the reader that was not added yet
  std::string text;
  int64_t num_tokens = 0;  // number of tokens of `text`

  void Add(std::string_view more, size_t num_more_tokens, int64_t limit);
  void Write(std::string_view request_id, bool is_stream, const FinishEvent& finish,
             int64_t limit) const;
};

}  // namespace sluice
