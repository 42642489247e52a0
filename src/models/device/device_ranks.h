// The ranks that share each layer on devices of their own, and what they gather of each other: what
// layers/tensor_ranks.h is on the CPU.
//
// A rank writes its columns of an array to memory of its own; the pieces of all ranks come one
// after the other, and are joined to whole rows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/device.h"
#include "kernels/cuda/device_kernels.h"
#include "models/decoder_spec.h"
#include "models/shard.h"
#include "parallel/device_communicator.h"

namespace sluice {

// Thread safety: the rank's thread.
class DeviceRanks {
 public:
  DeviceRanks(std::unique_ptr<DeviceCommunicator> group, const device::DeviceKernels& kernels,
              const DecoderSpec& spec, const RankPlace& place);

  DeviceCommunicator& group() { return *group_; }

  // Where an array of `rows` rows is put together. own: dense, this rank's columns. joined: room
  // for the pieces of all ranks; not used for a single row. all: the whole rows.
  struct Place {
    int64_t rows = 0;
    const void* own = nullptr;
    void* joined = nullptr;
    void* all = nullptr;
  };
  // Numbers of query heads, `bytes` of each, of a layer whose heads of all ranks are those of
  // `attention`.
  void GatherHeads(DeviceStream& stream, const AttentionSpec& attention, int64_t bytes,
                   const Place& place);
  // The same of heads of k: each rank gives those of FirstHeldKeys.
  void GatherKeyHeads(DeviceStream& stream, const AttentionSpec& attention, int64_t bytes,
                      const Place& place);
  // Columns that are cut like the rows of a matrix of `count` rows, of `bytes` bytes each.
  void GatherRowsOf(DeviceStream& stream, int64_t count, int64_t bytes, const Place& place);
  // Logits, F32, at the first rank alone.
  void GatherLogits(DeviceStream& stream, const Place& place);
  // Rows of the hidden size, F32, of which each rank has so many: one rank's after those of the
  // ranks before.
  void GatherEmbeddings(DeviceStream& stream, std::span<const int64_t> rows, const void* own,
                        void* all);

 private:
  void Cut(int64_t count, int64_t bytes);
  // Gathers the columns in `widths_`.
  void Gather(DeviceStream& stream, const Place& place, std::optional<int> root = {});

  std::unique_ptr<DeviceCommunicator> group_;
  const device::DeviceKernels& kernels_;
  RankPlace place_;
  int64_t hidden_size_;
  int64_t vocab_size_;
  std::vector<int64_t> widths_;  // bytes of a row, by rank
  std::vector<int64_t> sizes_;   // bytes of a piece, by rank
};

}  // namespace sluice
