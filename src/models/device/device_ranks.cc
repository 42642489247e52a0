#include "models/device/device_ranks.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "base/check.h"

namespace sluice {

DeviceRanks::DeviceRanks(std::unique_ptr<DeviceCommunicator> group,
                         std::unique_ptr<PeerExchange> peers, const device::DeviceKernels& kernels,
                         const DecoderSpec& spec, const RankPlace& place)
    : group_(std::move(group)),
      peers_(std::move(peers)),
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

void DeviceRanks::BeginStep(bool is_recorded) {
  is_recorded_ = is_recorded;
  if (peers_ != nullptr) peers_->BeginStep();
}

void DeviceRanks::UseGroup() {
  if (is_recorded_)
    throw std::runtime_error("ranks gather arrays of this size over NCCL, which is not captured");
  if (peers_ != nullptr) peers_->Separate();
}

PeerExchange::Columns DeviceRanks::ColumnsOf(const Place& place) const {
  const auto own = widths_.begin() + place_.tensor_rank;
  return {.own = place.own,
          .rows = place.rows,
          .widths = widths_,
          .begin = std::accumulate(widths_.begin(), own, int64_t{0}),
          .row_bytes = std::accumulate(widths_.begin(), widths_.end(), int64_t{0})};
}

void* DeviceRanks::Gather(DeviceStream& stream, const Place& place) {
  const PeerExchange::Columns columns = ColumnsOf(place);
  const int64_t bytes = place.rows * columns.row_bytes;
  if (peers_ == nullptr || !peers_->Fits(bytes)) {
    Join(stream, place);
    return place.all;
  }
  group_->ThrowIfFailed();
  std::byte* const rows = peers_->Gather(stream, columns);
  if (place.is_fleeting) return rows;
  stream.CopyOnDevice(place.all, rows, bytes);
  return place.all;
}

void DeviceRanks::Join(DeviceStream& stream, const Place& place, std::optional<int> root) {
  UseGroup();
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

void* DeviceRanks::GatherHeads(DeviceStream& stream, const AttentionSpec& attention, int64_t bytes,
                               const Place& place) {
  for (int rank = 0; rank < place_.tensor_size; ++rank) {
    widths_[static_cast<size_t>(rank)] =
        CutHeads(attention, rank, place_.tensor_size).q.size() * bytes;
  }
  return Gather(stream, place);
}

void* DeviceRanks::GatherKeyHeads(DeviceStream& stream, const AttentionSpec& attention,
                                  int64_t bytes, const Place& place) {
  for (int rank = 0; rank < place_.tensor_size; ++rank) {
    widths_[static_cast<size_t>(rank)] =
        FirstHeldKeys(attention, rank, place_.tensor_size).size() * bytes;
  }
  return Gather(stream, place);
}

void* DeviceRanks::GatherMixed(DeviceStream& stream, const MixerSpec& mixer, int64_t bytes,
                               const Place& place) {
  for (int rank = 0; rank < place_.tensor_size; ++rank) {
    widths_[static_cast<size_t>(rank)] =
        CutMixer(mixer, rank, place_.tensor_size).heads.size() * bytes;
  }
  return Gather(stream, place);
}

void* DeviceRanks::GatherRowsOf(DeviceStream& stream, int64_t count, int64_t bytes,
                                const Place& place) {
  Cut(count, bytes);
  return Gather(stream, place);
}

void DeviceRanks::GatherLogits(DeviceStream& stream, const Place& place) {
  Cut(vocab_size_, sizeof(float));
  if (peers_ == nullptr) return Join(stream, place, /*root=*/0);
  if (place_.tensor_rank == 0) CHECK(place.all == peers_->logits());
  group_->ThrowIfFailed();
  peers_->GatherLogits(stream, ColumnsOf(place));
}

void DeviceRanks::GatherEmbeddings(DeviceStream& stream, std::span<const int64_t> rows,
                                   const void* own, void* all) {
  UseGroup();
  for (size_t rank = 0; rank < sizes_.size(); ++rank)
    sizes_[rank] = rows[rank] * hidden_size_ * int64_t{sizeof(float)};
  group_->Gather(stream, sizes_, own, all);
}

bool DeviceRanks::PlaceEmbeddings(DeviceStream& stream, int64_t rows, const void* own,
                                  int64_t num_own, const int32_t* places, void* all) {
  const int64_t row_bytes = hidden_size_ * int64_t{sizeof(float)};
  if (peers_ == nullptr || !peers_->Fits(rows * row_bytes)) return false;
  group_->ThrowIfFailed();
  std::ranges::fill(widths_, row_bytes);
  std::byte* const placed = peers_->Gather(
      stream,
      {.own = own, .places = places, .rows = num_own, .widths = widths_, .row_bytes = row_bytes});
  stream.CopyOnDevice(all, placed, rows * row_bytes);
  return true;
}

}  // namespace sluice
