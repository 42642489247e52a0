// The memory that requests may hold: bodies, parsed JSON, prompts, answers that are not sent.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace sluice {

// A budget of bytes: allocations whose size a client determines take a lease first. A large lease
// never takes the last eighth, so that small requests are served while large ones hold all they
// may. Thread safety: all methods may be called from any thread.
class RequestMemory {
 public:
  // Leases up to this size are always granted: the number of connections bounds them.
  static constexpr uint64_t kTiny = uint64_t{4} << 10;
  // Larger ones are large.
  static constexpr uint64_t kSmall = uint64_t{64} << 10;

  explicit RequestMemory(uint64_t capacity) : capacity_(capacity) {}

  // Until it is called, nothing is too large for ever: the plan of the engine decides.
  void SetPlanned(uint64_t capacity) {
    capacity_ = capacity;
    planned_ = true;
  }

  uint64_t capacity() const { return capacity_; }
  // The most that one lease can be.
  uint64_t largest() const { return Allowed(kSmall + 1); }
  uint64_t used() const { return used_; }
  uint64_t num_refused() const { return num_refused_; }
  // A lease of so many bytes is refused whatever else is held.
  bool IsTooLarge(uint64_t bytes) const { return planned_ && bytes > kTiny && bytes > largest(); }
  // Bytes of large leases that have been given back since the last call.
  uint64_t TakeReturned() { return returned_.exchange(0); }

 private:
  friend class MemoryLease;

  uint64_t Allowed(uint64_t bytes) const {
    return bytes <= kSmall ? capacity_.load() : capacity_ - capacity_ / 8;
  }
  // From a lease of `from` bytes to one of `to`.
  bool Change(uint64_t from, uint64_t to);

  std::atomic<uint64_t> capacity_;
  std::atomic<bool> planned_{false};
  std::atomic<uint64_t> used_{0}, returned_{0}, num_refused_{0};
};

// The response to a request whose lease was refused.
struct MemoryRefusal {
  int status;           // 413 where it is too large, else 503
  std::string message;  // a sentence without quotes
};
MemoryRefusal RefusalOf(const RequestMemory& memory, uint64_t bytes);

// What one holder has taken of a RequestMemory; given back when it is destroyed. Thread safety: one
// thread at a time.
class MemoryLease {
 public:
  explicit MemoryLease(std::shared_ptr<RequestMemory> memory) : memory_(std::move(memory)) {}
  MemoryLease(MemoryLease&& other) noexcept
      : memory_(other.memory_), bytes_(std::exchange(other.bytes_, 0)) {}
  MemoryLease& operator=(MemoryLease&&) = delete;
  ~MemoryLease() { Shrink(0); }

  uint64_t bytes() const { return bytes_; }
  const RequestMemory& memory() const { return *memory_; }
  // To `bytes` in all; smaller always succeeds. False, and as it was, where they do not fit now.
  [[nodiscard]] bool TryResize(uint64_t bytes) {
    if (!memory_->Change(bytes_, bytes)) return false;
    bytes_ = bytes;
    return true;
  }
  // To at most `bytes`.
  void Shrink(uint64_t bytes) {
    if (bytes >= bytes_) return;
    memory_->Change(bytes_, bytes);
    bytes_ = bytes;
  }

 private:
  const std::shared_ptr<RequestMemory> memory_;
  uint64_t bytes_ = 0;
};

}  // namespace sluice
