// Gathers columns between ranks whose devices address each other's memory. Each rank launches one
// kernel, which stores the rank's columns into the arrays of all ranks
// (kernels/cuda/exchange_columns.h). Results have the same bits as those of a DeviceCommunicator's
// gather. May be captured in graphs.
//
// Each rank has two slots for received data in its own memory, and uses them alternately. A rank
// must have read the data of exchange i before it launches exchange i + 1. After that launch,
// another rank may launch exchange i + 2, which stores into the slot of exchange i.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/device.h"
#include "kernels/cuda/exchange_columns.h"
#include "parallel/communicator.h"

namespace sluice {

// Returns whether the kernels of each device can address the memory of all other devices. If so,
// enables this access.
bool LetAddressEachOther(std::span<Device* const> devices);

// Thread safety: used only by the rank's thread.
class PeerExchange {
 public:
  // Bytes of the memory for arrays of up to `slot_bytes`.
  static int64_t MemoryBytes(int64_t slot_bytes);

  struct Parts {
    Communicator& stage;               // the ranks that exchange
    Device& device;                    // device of this rank
    std::span<Device* const> devices;  // devices of all ranks of the stage
    DeviceStream& stream;              // stream of this rank; no work on it may use `memory`
    device::ExchangeColumns kernel;
    std::byte* memory;  // MemoryBytes(slot_bytes), aligned to 256; outlives all ranks' exchanges
    int64_t slot_bytes;
    std::byte* logits;                   // where rank 0 receives logits; null on other ranks
    std::shared_ptr<DeviceBuffer> stop;  // DeviceCommunicatorOptions::stop
  };
  // Collective. Returns null if a device cannot address the memory of another device. kUnavailable
  // if another rank failed, kInternal if the memory cannot be prepared.
  static Result<std::unique_ptr<PeerExchange>> Create(const Parts& parts);

  // Call before the first exchange of a step, and of a graph.
  void BeginStep() {
    slot_ = 0;
    waits_first_ = true;
  }
  // Call if the ranks have exchanged data in another way since the last exchange.
  void Separate() { waits_first_ = true; }

  // Returns whether an array of this number of bytes fits into a slot. The result is the same on
  // all ranks.
  bool Fits(int64_t bytes) const { return bytes <= slot_bytes_; }

  struct Columns {
    const void* own = nullptr;          // [rows, widths[own rank]]
    const int32_t* places = nullptr;    // see ExchangeColumnsArgs::places
    int64_t rows = 0;                   // number of rows of `own`
    std::span<const int64_t> widths{};  // bytes of each rank's columns
    int64_t begin = 0;                  // offset in bytes of this rank's columns in a row
    int64_t row_bytes = 0;
  };
  // Enqueues a gather to all ranks. REQUIRES: the array fits. Returns the address of the whole
  // rows, which are in a slot.
  std::byte* Gather(DeviceStream& stream, const Columns& columns);
  // Enqueues a gather into the logits of rank 0.
  void GatherLogits(DeviceStream& stream, const Columns& columns);
  const std::byte* logits() const { return logits_.front(); }

 private:
  PeerExchange() = default;
  device::ExchangeColumnsArgs ArgsOf(const Columns& columns) const;

  device::ExchangeColumns kernel_ = nullptr;
  int rank_ = 0;
  int64_t slot_bytes_ = 0;
  std::array<std::vector<std::byte*>, 2> slots_;  // slots of each rank, by rank
  std::vector<std::byte*> logits_;                // logits of each rank, by rank
  std::vector<device::ExchangeState*> states_;    // state of each rank, by rank
  std::shared_ptr<DeviceBuffer> stop_;
  size_t slot_ = 0;
  bool waits_first_ = true;
};

}  // namespace sluice
