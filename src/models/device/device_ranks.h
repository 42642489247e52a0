// The ranks that share each layer, each on its own device, and how they gather results; the
// counterpart of cpu/tensor_ranks.h.
//
// A rank writes its columns of an array to its own memory. If devices address each other's memory,
// each device stores its columns into the whole rows of all ranks (peer_exchange.h). Otherwise, or
// if an array does not fit, the communicator gathers the ranks' pieces as consecutive arrays, and a
// kernel joins them into whole rows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/device.h"
#include "kernels/cuda/device_kernels.h"
#include "models/decoder_spec.h"
#include "models/device/peer_exchange.h"
#include "models/shard.h"
#include "parallel/device_communicator.h"

namespace sluice {

// Thread safety: used only by the rank's thread.
class DeviceRanks {
 public:
  // `peers`: null if devices do not address each other's memory.
  DeviceRanks(std::unique_ptr<DeviceCommunicator> group, std::unique_ptr<PeerExchange> peers,
              const device::DeviceKernels& kernels, const DecoderSpec& spec,
              const RankPlace& place);

  DeviceCommunicator& group() { return *group_; }
  bool has_peers() const { return peers_ != nullptr; }

  // Call before the first gather of a step. If the step `is_recorded`, gathers that go through the
  // communicator throw std::runtime_error.
  void BeginStep(bool is_recorded);

  // The buffers for gathering an array of `rows` rows. own: this rank's columns, contiguous.
  // joined: room for the pieces of all ranks; not used for a single row. all: the whole rows.
  struct Place {
    int64_t rows = 0;
    const void* own = nullptr;
    void* joined = nullptr;
    void* all = nullptr;
    // Whether the rows are read only before the next gather. If so, they may be left in another
    // buffer.
    bool is_fleeting = false;
  };
  // The Gather functions return the address of the whole rows: place.all, or another address if
  // place.is_fleeting.
  //
  // Gathers query heads of `bytes` bytes each. `attention` has the heads of all ranks.
  void* GatherHeads(DeviceStream& stream, const AttentionSpec& attention, int64_t bytes,
                    const Place& place);
  // Gathers KV heads; each rank contributes those of FirstHeldKeys.
  void* GatherKeyHeads(DeviceStream& stream, const AttentionSpec& attention, int64_t bytes,
                       const Place& place);
  // Gathers heads of values of `bytes` bytes each. `mixer` has the heads of all ranks.
  void* GatherMixed(DeviceStream& stream, const MixerSpec& mixer, int64_t bytes,
                    const Place& place);
  // Gathers columns of `bytes` bytes that are divided like the rows of a matrix with `count` rows.
  void* GatherRowsOf(DeviceStream& stream, int64_t count, int64_t bytes, const Place& place);
  // Gathers F32 logits at the first rank.
  void GatherLogits(DeviceStream& stream, const Place& place);
  // Gathers F32 rows of the hidden size, in the order of ranks: rows[i] rows from rank i. Uses the
  // communicator.
  void GatherEmbeddings(DeviceStream& stream, std::span<const int64_t> rows, const void* own,
                        void* all);
  // Gathers `rows` F32 rows of the hidden size: row i of the `num_own` rows at `own` becomes row
  // places[i], unless places[i] is negative. If the communicator would be needed, does nothing and
  // returns false.
  bool PlaceEmbeddings(DeviceStream& stream, int64_t rows, const void* own, int64_t num_own,
                       const int32_t* places, void* all);

 private:
  void Cut(int64_t count, int64_t bytes);
  // Gathers columns; their sizes are in `widths_`.
  void* Gather(DeviceStream& stream, const Place& place);
  void Join(DeviceStream& stream, const Place& place, std::optional<int> root = {});
  PeerExchange::Columns ColumnsOf(const Place& place) const;
  // Call before an exchange through the communicator.
  void UseGroup();

  std::unique_ptr<DeviceCommunicator> group_;
  std::unique_ptr<PeerExchange> peers_;
  bool is_recorded_ = false;
  const device::DeviceKernels& kernels_;
  RankPlace place_;
  int64_t hidden_size_;
  int64_t vocab_size_;
  std::vector<int64_t> widths_;  // bytes of a row of each rank
  std::vector<int64_t> sizes_;   // bytes of the piece of each rank
};

}  // namespace sluice
