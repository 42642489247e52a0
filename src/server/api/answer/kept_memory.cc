#include "server/api/answer/kept_memory.h"

namespace sluice {

void KeptMemory::Add(size_t bytes) {
  bytes_ += bytes;
  if (!counts_ || answer_.memory == nullptr || bytes_ <= reserved_) return;
  // Size of the steps in which memory is reserved, so that the lease does not change every few
  // tokens. The formatted body takes as much memory as its parts, and twice that while its buffer
  // grows.
  constexpr size_t kStep = size_t{16} << 10;
  const size_t wanted = bytes_ + kStep;
  is_refused_ = !answer_.memory->TryResize(answer_.memory->bytes() + 3 * (wanted - reserved_));
  if (!is_refused_) reserved_ = wanted;
}

std::optional<ApiError> KeptMemory::Refusal() const {
  if (!counts_) return std::nullopt;
  const uint64_t most = answer_.model->config.max_answer_bytes;
  if (bytes_ > most) return AnswerTooLarge(most);
  if (is_refused_) return MemoryRefused(answer_.memory->memory(), bytes_);
  return std::nullopt;
}

}  // namespace sluice
