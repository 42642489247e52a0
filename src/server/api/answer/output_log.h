// What --enable-log-outputs writes of a choice of an answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/api/common/answer_event.h"

namespace sluice {

// `limit`: characters that are logged, -1: all (--max-log-len).
struct OutputLog {
  std::string unlogged;  // text that the reader has taken
  std::string text;
  int64_t num_tokens = 0;  // of it

  void Add(std::string_view more, size_t num_more_tokens, int64_t limit);
  void Write(std::string_view request_id, bool is_stream, const FinishEvent& finish,
             int64_t limit) const;
};

}  // namespace sluice
