#include "models/device/device_ranks.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {

DeviceRanks::DeviceRanks(std::unique_ptr<DeviceCommunicator> group,
                         const device::DeviceKernels& kernels, const DecoderSpec& spec,
                         const RankPlace& place)
    : group_(std::move(group)),
      kernels_(kernels),
      place_(place),
      hidden_size_(spec.hidden_size),
      vocab_size_(spec.vocab_size),
      widths_(static_cast<size_t>(place.tensor_size)),
      sizes_(widths_.size()) {
  CHECK_LE(place.tensor_size, device::kMostJoinedPieces);
}

void DeviceRanks::Cut(int64_t count, int64_t bytes) {
  for (int rank = 0; rank < place_.tensor_size; ++rank)
    widths_[static_cast<size_t>(rank)] = CutRows(count, rank, place_.tensor_size).size() * bytes;
}

void DeviceRanks::Gather(DeviceStream& stream, const Place& place, std::optional<int> root) {
  for (size_t rank = 0; rank < sizes_.size(); ++rank) sizes_[rank] = widths_[rank] * place.rows;
  if (place.rows == 1) return group_->Gather(stream, sizes_, place.own, place.all, root);
  group_->Gather(stream, sizes_, place.own, place.joined, root);
  if (root && *root != place_.tensor_rank) return;
  device::JoinColumnsArgs args = {};
  args.in = place.joined;
  args.rows = place.rows;
  args.num_pieces = place_.tensor_size;
  int64_t end = 0;
  for (size_t rank = 0; rank < widths_.size(); ++rank) args.ends[rank] = end += widths_[rank];
  args.out = place.all;
  kernels_.join_columns(stream.handle(), args);
}

void DeviceRanks::GatherHeads(DeviceStream& stream, const AttentionSpec& attention, int64_t bytes,
                              const Place& place) {
  for (int rank = 0; rank < place_.tensor_size; ++rank) {
    widths_[static_cast<size_t>(rank)] =
        CutHeads(attention, rank, place_.tensor_size).q.size() * bytes;
  }
  Gather(stream, place);
}

void DeviceRanks::GatherKeyHeads(DeviceStream& stream, const AttentionSpec& attention,
                                 int64_t bytes, const Place& place) {
  for (int rank = 0; rank < place_.tensor_size; ++rank) {
    widths_[static_cast<size_t>(rank)] =
        FirstHeldKeys(attention, rank, place_.tensor_size).size() * bytes;
  }
  Gather(stream, place);
}

void DeviceRanks::GatherRowsOf(DeviceStream& stream, int64_t count, int64_t bytes,
                               const Place& place) {
  Cut(count, bytes);
  Gather(stream, place);
}

void DeviceRanks::GatherLogits(DeviceStream& stream, const Place& place) {
  Cut(vocab_size_, sizeof(float));
  Gather(stream, place, /*root=*/0);
}

void DeviceRanks::GatherEmbeddings(DeviceStream& stream, std::span<const int64_t> rows,
                                   const void* own, void* all) {
  for (size_t rank = 0; rank < sizes_.size(); ++rank)
    sizes_[rank] = rows[rank] * hidden_size_ * int64_t{sizeof(float)};
  group_->Gather(stream, sizes_, own, all);
}

}  // namespace sluice
