#include "device/unwritten_memory.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/integer.h"

namespace sluice {
namespace {

constexpr int64_t kAlignment = 256;
// Allocations of at least this size are copy-on-write mappings of a file of 0xFF bytes.
constexpr int64_t kTileBytes = int64_t{16} << 20;

// Returns the descriptor of a file of kTileBytes bytes of 0xFF; -1 if the system cannot create it.
int TileFile() {
  static const int file = [] {
    const int made = memfd_create("unwritten", MFD_CLOEXEC);
    if (made < 0) return -1;
    const std::vector<unsigned char> bytes(size_t{1} << 20, 0xFF);
    for (int64_t written = 0; written < kTileBytes;) {
      const ssize_t count = write(made, bytes.data(), bytes.size());
      if (count <= 0) {
        close(made);
        return -1;
      }
      written += count;
    }
    return made;
  }();
  return file;
}

// Returns null if the system refuses.
void* MapTiles(int64_t bytes) {
  const int file = TileFile();
  if (file < 0) return nullptr;
  const auto size = static_cast<size_t>(RoundUp(bytes, kTileBytes));
  void* base = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  for (size_t offset = 0; offset < size; offset += kTileBytes) {
    if (mmap(static_cast<char*>(base) + offset, kTileBytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0) == MAP_FAILED) {
      munmap(base, size);
      return nullptr;
    }
  }
  return base;
}

}  // namespace

Result<void*> AllocateUnwritten(int64_t bytes, const char* what) {
  void* data = nullptr;
  if (bytes >= kTileBytes) {
    data = MapTiles(bytes);
  } else {
    const auto size = static_cast<size_t>(RoundUp(bytes, kAlignment));
    data = std::aligned_alloc(kAlignment, size);
    if (data != nullptr) memset(data, 0xFF, size);
  }
  if (data == nullptr)
    return Fail(
        ErrorCode::kResourceExhausted,
        fmt::format("{}: the host has no {} bytes of memory to give to the emulated device: "
                    "{}",
                    what, bytes, strerror(errno)));
  return data;
}

void FreeUnwritten(void* data, int64_t bytes) {
  if (bytes >= kTileBytes)
    munmap(data, static_cast<size_t>(RoundUp(bytes, kTileBytes)));
  else
    std::free(data);
}

}  // namespace sluice
