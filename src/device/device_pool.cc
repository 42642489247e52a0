#include "device/device_pool.h"

#include <algorithm>
#include <cstring>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include <fmt/format.h>

#include "base/check.h"
#include "device/device_bytes.h"
#include "device/emulated_device.h"

namespace sluice {
namespace {

constexpr unsigned char kGapByte = 0xA5;

void Poison([[maybe_unused]] const void* data, [[maybe_unused]] int64_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  __asan_poison_memory_region(data, static_cast<size_t>(bytes));
#endif
}

void Unpoison([[maybe_unused]] const void* data, [[maybe_unused]] int64_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(data, static_cast<size_t>(bytes));
#endif
}

}  // namespace

Result<DevicePool> DevicePool::Allocate(Device& device, int64_t bytes, const char* what) {
  DevicePool pool;
  pool.size_ = Padded(bytes);
  if (auto* emulated = dynamic_cast<EmulatedDevice*>(&device); emulated != nullptr) {
    // Reserves room for a gap of kAlignment after each piece; the smallest piece has kAlignment
    // bytes.
    pool.emulated_ = emulated;
    ASSIGN_OR_RETURN(pool.memory_, emulated->AllocateSpaced(pool.size_, 2 * pool.size_, what));
  } else {
    ASSIGN_OR_RETURN(pool.memory_, device.Allocate(pool.size_, what));
  }
  return pool;
}

DevicePool::~DevicePool() {
  for (const Gap& gap : gaps_) {
    Unpoison(gap.begin, gap.bytes);
    const bool is_whole = std::all_of(gap.begin, gap.begin + gap.bytes,
                                      [](unsigned char byte) { return byte == kGapByte; });
    CHECK(is_whole, "the memory behind {} was written", gap.piece);
  }
}

void DevicePool::AddGap(unsigned char* begin, int64_t bytes, std::string piece) {
  memset(begin, kGapByte, static_cast<size_t>(bytes));
  Poison(begin, bytes);
  gaps_.push_back({begin, bytes, std::move(piece)});
}

bool DevicePool::keeps_arrays_apart() const {
  return emulated_ != nullptr && emulated_->keeps_arrays_apart();
}

Result<void*> DevicePool::Take(int64_t bytes, const char* what, const std::vector<ArrayGap>& gaps) {
  CHECK_GE(bytes, 0);
  CHECK(gaps.empty() || keeps_arrays_apart());
  const int64_t left = size_bytes() - used_;
  if (bytes > left)
    return Fail(
        ErrorCode::kResourceExhausted,
        fmt::format("{}: {} are needed, and {} are left of the {} that were set aside on the "
                    "device",
                    what, DeviceBytesText(bytes), DeviceBytesText(left),
                    DeviceBytesText(size_bytes())));
  if (bytes == 0) return nullptr;
  if (!gaps.empty()) {
    const int64_t spaced = gaps.back().offset + gaps.back().bytes;
    ASSIGN_OR_RETURN(DeviceBuffer memory, emulated_->AllocateSpaced(0, spaced, what));
    auto* const piece = memory.As<unsigned char>();
    apart_.push_back(std::move(memory));
    used_ += Padded(bytes);
    int number = 0;
    for (const ArrayGap& gap : gaps)
      AddGap(piece + gap.offset, gap.bytes, fmt::format("array {} of {}", number++, what));
    return piece;
  }
  auto* const piece = memory_.As<unsigned char>() + used_ + gaps_in_memory_ * kAlignment;
  used_ += Padded(bytes);
  if (emulated_ != nullptr) {
    AddGap(piece + bytes, Padded(bytes) - bytes + kAlignment, what);
    ++gaps_in_memory_;
  }
  return piece;
}

}  // namespace sluice
