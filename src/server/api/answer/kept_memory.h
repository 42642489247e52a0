// The memory of a whole answer until it is sent.
#pragma once

#include <cstddef>
#include <optional>

#include "server/api/answer/answer_writer.h"

namespace sluice {

// Counts the bytes kept for an answer and reserves them in the request's memory. Neither reserves
// nor refuses anything for a streamed answer, unless `keeps_streams` is set. Thread safety: that of
// the AnswerWriter that owns it.
class KeptMemory {
 public:
  // `answer` outlives this.
  explicit KeptMemory(const AnswerOptions& answer, bool keeps_streams = false)
      : answer_(answer), counts_(keeps_streams || !answer.stream) {}

  // Approximate bytes of the answer's parts; the body that is formatted from them is counted too.
  void Add(size_t bytes);
  // Implements AnswerWriter::Refusal().
  std::optional<ApiError> Refusal() const;

 private:
  const AnswerOptions& answer_;
  const bool counts_;
  size_t bytes_ = 0;
  size_t reserved_ = 0;      // part of bytes_ that the request's memory covers
  bool is_refused_ = false;  // a larger reservation was refused
};

}  // namespace sluice
