// The memory that a whole answer takes until it is sent.
#pragma once

#include <cstddef>
#include <optional>

#include "server/api/answer/answer_writer.h"

namespace sluice {

// Counts the bytes kept for an answer and reserves them in the request's memory. Does nothing for a
// streamed answer, unless `keeps_streams`. Thread safety: one thread at a time, like the
// AnswerWriter that owns it.
class KeptMemory {
 public:
  // `answer` must outlive this object.
  explicit KeptMemory(const AnswerOptions& answer, bool keeps_streams = false)
      : answer_(answer), counts_(keeps_streams || !answer.stream) {}

  // Adds the approximate bytes of a part of the answer. The total includes the body that is
  // formatted from the parts.
  void Add(size_t bytes);
  // Implements AnswerWriter::Refusal().
  std::optional<ApiError> Refusal() const;

 private:
  const AnswerOptions& answer_;
  const bool counts_;
  size_t bytes_ = 0;
  size_t reserved_ = 0;      // the part of bytes_ that the request's memory covers
  bool is_refused_ = false;  // whether a larger reservation was refused
};

}  // namespace sluice
