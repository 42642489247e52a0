#include "models/device/peer_exchange.h"

#include <algorithm>

#include "base/check.h"
#include "device/device_pool.h"

namespace sluice {
namespace {

constexpr int64_t kStateBytes = DevicePool::Padded(sizeof(device::ExchangeState));

// What each rank reports to the other ranks.
struct Told {
  std::byte* memory;
  std::byte* logits;
  int64_t slot_bytes;
  bool addresses_all;  // whether its kernels can address the memory of all other ranks
};

// Waits until all ranks have called it. Has no time limit, because loading may take long. Throws
// GroupError if the group fails.
void Meet(Communicator& stage) {
  char is_here = 1;
  if (stage.rank() != 0) {
    stage.Post(&is_here, sizeof(is_here), 0);
    char all_are = 0;
    stage.Receive(&all_are, sizeof(all_are), 0, Patience::kIdle);
    return stage.AwaitPosted(0, 0);
  }
  for (int rank = 1; rank < stage.size(); ++rank) {
    char other_is = 0;
    stage.Receive(&other_is, sizeof(other_is), rank, Patience::kIdle);
  }
  for (int rank = 1; rank < stage.size(); ++rank) stage.Send(&is_here, sizeof(is_here), rank);
}

}  // namespace

bool LetAddressEachOther(std::span<Device* const> devices) {
  return std::ranges::all_of(devices, [&](Device* device) {
    return std::ranges::all_of(devices, [&](const Device* other) {
      return device == other || device->LetAddress(*other);
    });
  });
}

int64_t PeerExchange::MemoryBytes(int64_t slot_bytes) {
  return kStateBytes + 2 * DevicePool::Padded(slot_bytes);
}

Result<std::unique_ptr<PeerExchange>> PeerExchange::Create(const Parts& parts) {
  const int size = parts.stage.size();
  CHECK_EQ(static_cast<int>(parts.devices.size()), size);
  CHECK_LE(size, device::kMostExchanging);
  Told own = {.memory = parts.memory,
              .logits = parts.logits,
              .slot_bytes = parts.slot_bytes,
              .addresses_all = true};
  for (Device* const other : parts.devices) {
    if (other != &parts.device) own.addresses_all &= parts.device.LetAddress(*other);
  }
  // Initializes the flags before the other ranks know the address.
  parts.stream.Fill(parts.memory, 0, kStateBytes);
  RETURN_IF_ERROR(parts.stream.Synchronize());
  std::vector<Told> told(static_cast<size_t>(size));
  told[static_cast<size_t>(parts.stage.rank())] = own;
  try {
    Meet(parts.stage);
    for (int rank = 0; rank < size; ++rank) {
      parts.stage.Broadcast(&told[static_cast<size_t>(rank)], sizeof(Told), rank, Patience::kStep);
    }
  } catch (const GroupError& error) {
    return Fail(ErrorCode::kUnavailable, error.what());
  }
  if (!std::ranges::all_of(told, &Told::addresses_all)) return nullptr;
  auto exchange = std::unique_ptr<PeerExchange>(new PeerExchange);
  exchange->kernel_ = parts.kernel;
  exchange->rank_ = parts.stage.rank();
  exchange->slot_bytes_ = std::ranges::min_element(told, {}, &Told::slot_bytes)->slot_bytes;
  exchange->stop_ = parts.stop;
  for (const Told& rank : told) {
    exchange->states_.push_back(reinterpret_cast<device::ExchangeState*>(rank.memory));
    for (size_t slot = 0; slot < 2; ++slot) {
      exchange->slots_[slot].push_back(rank.memory + kStateBytes +
                                       static_cast<int64_t>(slot) *
                                           DevicePool::Padded(rank.slot_bytes));
    }
    exchange->logits_.push_back(rank.logits);
  }
  return exchange;
}

device::ExchangeColumnsArgs PeerExchange::ArgsOf(const Columns& columns) const {
  device::ExchangeColumnsArgs args = {};
  args.own = columns.own;
  args.places = columns.places;
  args.rows = columns.rows;
  args.own_bytes = columns.widths[static_cast<size_t>(rank_)];
  args.begin = columns.begin;
  args.row_bytes = columns.row_bytes;
  args.rank = rank_;
  args.num_ranks = static_cast<int32_t>(states_.size());
  args.root = -1;
  args.waits_first = waits_first_;
  args.stop = stop_->As<uint32_t>();
  std::ranges::copy(states_, args.states);
  return args;
}

std::byte* PeerExchange::Gather(DeviceStream& stream, const Columns& columns) {
  device::ExchangeColumnsArgs args = ArgsOf(columns);
  const std::vector<std::byte*>& slots = slots_[slot_];
  std::ranges::copy(slots, args.all);
  kernel_(stream.handle(), args);
  slot_ = 1 - slot_;
  waits_first_ = false;
  return slots[static_cast<size_t>(rank_)];
}

void PeerExchange::GatherLogits(DeviceStream& stream, const Columns& columns) {
  device::ExchangeColumnsArgs args = ArgsOf(columns);
  std::ranges::copy(logits_, args.all);
  args.root = 0;
  kernel_(stream.handle(), args);
  // The other ranks are not informed of a failure of rank 0 or of another rank.
  waits_first_ = true;
}

}  // namespace sluice
