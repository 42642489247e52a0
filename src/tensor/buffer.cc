#include "tensor/buffer.h"

#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

namespace sluice {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kPage = 4096;

size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

Result<Buffer> Buffer::Allocate(size_t size_bytes, const char* what) {
  Buffer buffer;
  if (size_bytes == 0) return buffer;
  const size_t alignment = size_bytes >= kHugePage ? kHugePage : kPage;
  const size_t size = RoundUp(size_bytes, kPage);  // not rounded up to huge pages
  // Maps more than needed, then unmaps the excess to align the start.
  const size_t padded = size + (alignment > kPage ? alignment : 0);
  void* mapped = ::mmap(nullptr, padded, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("cannot allocate {} bytes for {}", size_bytes, what));
  }
  auto* start = static_cast<std::byte*>(mapped);
  const auto address = reinterpret_cast<uintptr_t>(start);
  std::byte* aligned = start + (RoundUp(address, alignment) - address);
  if (aligned > start) ::munmap(start, static_cast<size_t>(aligned - start));
  const size_t tail = padded - static_cast<size_t>(aligned - start) - size;
  if (tail > 0) ::munmap(aligned + size, tail);
  if (alignment == kHugePage) ::madvise(aligned, size / kHugePage * kHugePage, MADV_HUGEPAGE);
  buffer.data_ = aligned;
  buffer.size_ = size_bytes;
  return buffer;
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  ::munmap(data_, RoundUp(size_, kPage));
}

}  // namespace sluice
