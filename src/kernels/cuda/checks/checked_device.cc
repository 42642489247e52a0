#include "kernels/cuda/checks/checked_device.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "kernels/cuda/device_kernel_tables.h"

namespace sluice::checks {
namespace {

constexpr int64_t kGuardBytes = 256;
constexpr uint8_t kGuard = 0xA5;

}  // namespace

Result<DeviceUnderTest> DeviceUnderTest::Open(DeviceKind kind, int ordinal) {
  ASSIGN_OR_RETURN(std::unique_ptr<Device> device, OpenDevice(kind, ordinal));
  return Of(std::move(device));
}

Result<DeviceUnderTest> DeviceUnderTest::Of(std::unique_ptr<Device> device) {
  DeviceUnderTest opened;
  opened.device_ = std::move(device);
  ASSIGN_OR_RETURN(opened.stream_, opened.device_->CreateStream());
  opened.kernels_ = device::KernelsOf(opened.device_->info().kind);
  return opened;
}

CaseMemory::Piece* CaseMemory::Take(int64_t bytes, bool is_output) {
  if (!ok()) return nullptr;
  // Inputs have no guard after them, so that a sanitizer detects reads beyond the end.
  auto buffer = device_.device().Allocate(bytes + (is_output ? kGuardBytes : 0), "a check");
  if (!buffer) {
    status_ = tl::unexpected<Error>(buffer.error());
    return nullptr;
  }
  pieces_.push_back({std::move(*buffer), bytes, is_output});
  Piece& piece = pieces_.back();
  if (is_output) device_.stream().Fill(piece.buffer.As<uint8_t>() + bytes, kGuard, kGuardBytes);
  return &piece;
}

void* CaseMemory::Copy(std::span<const std::byte> bytes, bool is_output) {
  Piece* piece = Take(static_cast<int64_t>(bytes.size()), is_output);
  if (piece == nullptr) return nullptr;
  device_.stream().CopyToDevice(piece->buffer.data(), bytes.data(), piece->size);
  status_ = device_.stream().Synchronize();
  return piece->buffer.data();
}

void* CaseMemory::Fill(int64_t bytes) {
  Piece* piece = Take(bytes, /*is_output=*/true);
  if (piece == nullptr) return nullptr;
  device_.stream().Fill(piece->buffer.data(), 0xFF, bytes);
  return piece->buffer.data();
}

void CaseMemory::ReadBytes(const void* from, std::span<std::byte> to) {
  if (!ok()) return;
  device_.stream().CopyToHost(to.data(), from, static_cast<int64_t>(to.size()));
  status_ = device_.stream().Synchronize();
  if (!ok()) return;
  for (const std::byte byte : to)  // FNV-1a
    digest_ = (digest_ ^ static_cast<uint64_t>(byte)) * 0x100000001B3u;
  CheckGuards();
}

void CaseMemory::CheckGuards() {
  std::array<uint8_t, kGuardBytes> guard{};
  for (const Piece& piece : pieces_) {
    if (!piece.is_output) continue;
    device_.stream().CopyToHost(guard.data(), piece.buffer.As<uint8_t>() + piece.size, kGuardBytes);
    if (status_ = device_.stream().Synchronize(); !ok()) return;
    const auto changed =
        std::find_if(guard.begin(), guard.end(), [](uint8_t byte) { return byte != kGuard; });
    if (changed == guard.end()) continue;
    status_ =
        Fail(ErrorCode::kInternal, fmt::format("byte {} behind an output of {} bytes was written",
                                               changed - guard.begin(), piece.size));
    return;
  }
}

}  // namespace sluice::checks
