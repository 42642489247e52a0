#include "server/request_memory.h"

#include <fmt/format.h>

namespace sluice {

bool RequestMemory::Change(uint64_t from, uint64_t to) {
  if (to <= from) {
    used_ -= from - to;
    if (from > kSmall) returned_ += from - to;
    return true;
  }
  const uint64_t more = to - from;
  if (to <= kTiny) {
    used_ += more;
    return true;
  }
  const uint64_t allowed = Allowed(to);
  uint64_t used = used_;
  do {
    if (used > allowed || more > allowed - used) {
      ++num_refused_;
      return false;
    }
  } while (!used_.compare_exchange_weak(used, used + more));
  return true;
}

MemoryRefusal RefusalOf(const RequestMemory& memory, uint64_t bytes) {
  if (memory.IsTooLarge(bytes)) {
    return {413, fmt::format("The request needs {} bytes of memory, but a request may use at most "
                             "{} on this server; send a smaller request, or start the server with "
                             "a larger --request-memory-bytes (now {}).",
                             bytes, memory.largest(), memory.capacity())};
  }
  return {503,
          "The server has reached its limit of memory for large requests and answers; try again "
          "later."};
}

}  // namespace sluice
