// The instructions of warpgroup_code.h: barriers in shared memory that count bytes, copies of
// tiles, and matrix products of a warpgroup.
#include <array>
#include <bit>
#include <cstring>

#include "device/plain_tensor_map.h"
#include "kernels/cuda/emulated_bytes.h"
#include "kernels/cuda/emulated_machine.h"
#include "kernels/cuda/emulated_races.h"

namespace sluice::emulator {
namespace {

constexpr uint32_t kTileRowBytes = 128;    // of a tile
constexpr uint32_t kTileAlignment = 1024;  // of its swizzle
constexpr uint32_t kPieceBytes = 16;
constexpr int kTileDepth = 32;  // columns of a product

// Pieces of 16 bytes of row r are exchanged: piece i is where piece i ^ r % 8 would be.
uint32_t PlaceInTile(uint32_t row, uint32_t byte) {
  return row * kTileRowBytes + (byte / kPieceBytes ^ row % 8) * kPieceBytes + byte % kPieceBytes;
}

float TileNumber(unsigned char code) {
  static const auto kNumbers = [] {
    std::array<float, 256> numbers;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto code = static_cast<unsigned char>(i);
      numbers[i] = E4m3Of(&code);
    }
    return numbers;
  }();
  return kNumbers[code];
}

// The 32 numbers of a row that a description of DescribeRows (warpgroup_code.h) names.
struct DescribedRows {
  const unsigned char* begin;
  uint32_t column;
  void Read(uint32_t row, float (&numbers)[kTileDepth]) const {
    for (uint32_t i = 0; i < kTileDepth; ++i)
      numbers[i] = TileNumber(begin[PlaceInTile(row, column + i)]);
  }
};

}  // namespace

uint32_t Machine::SharedAddress(const void* shared) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(shared) - OwnBlock().shared);
}

Machine::Mbarrier& Machine::MbarrierAt(Block& block, uint32_t address) {
  const auto found = block.mbarriers.find(address);
  if (found == block.mbarriers.end()) Die("there is no mbarrier at this address");
  return found->second;
}

void Machine::InitMbarrier(uint32_t address, int count) {
  if (address % 8 != 0 || address + 8 > grid_.shared_bytes || count <= 0)
    Die("an mbarrier is misaligned, outside of shared memory, or counts nothing");
  if (!OwnBlock().mbarriers.try_emplace(address, Mbarrier{count, count, 0, 0}).second)
    Die("there is an mbarrier at this address already");
}

// Ends the phase if nothing is pending.
void Machine::CompleteMbarrier(Block& block, uint32_t address, int arrivals, int64_t bytes) {
  Mbarrier& mbarrier = MbarrierAt(block, address);
  mbarrier.pending -= arrivals;
  mbarrier.pending_bytes -= bytes;
  if (mbarrier.pending < 0) Die("an mbarrier has more arrivals than it counts in a phase");
  if (mbarrier.pending > 0 || mbarrier.pending_bytes != 0) return;
  mbarrier.pending = mbarrier.count;
  ++mbarrier.phase;
  for (auto& thread : block.threads) {
    if (thread->index >= grid_.threads || !thread->awaits || thread->awaited != address) continue;
    thread->awaits = false;
    MakeReady(*thread);
  }
}

void Machine::ArriveAtMbarrier(uint32_t address, int bytes) {
  MayYield();
  Mbarrier& mbarrier = MbarrierAt(OwnBlock(), address);
  mbarrier.pending_bytes += bytes;
  if (finds_races_) races::Release(&mbarrier);
  CompleteMbarrier(OwnBlock(), address, 1, 0);
  MayYield();
}

void Machine::AwaitMbarrier(uint32_t address, int parity) {
  MayYield();
  const Mbarrier& mbarrier = MbarrierAt(OwnBlock(), address);
  while (mbarrier.phase % 2 == static_cast<uint64_t>(parity)) {
    self_->awaits = true;
    self_->awaited = address;
    Yield();
  }
  if (finds_races_) races::Acquire(&mbarrier);
}

void Machine::CopyTile(uint32_t shared, const void* map, int column, int row, uint32_t mbarrier) {
  device::PlainTensorMap plain;
  CopyBytes(&plain, map, sizeof(plain));
  if (plain.magic != device::PlainTensorMap::kMagic || plain.rank != 2 || plain.strides[0] != 1)
    Die("there is no tensor map of a matrix of bytes");
  if (plain.swizzle != device::TensorSwizzle::k128 || plain.box[0] != kTileRowBytes)
    Die("the emulator copies only rows of 128 bytes, exchanged within 128 bytes");
  if (shared % kTileAlignment != 0 || shared + plain.box[1] * kTileRowBytes > grid_.shared_bytes)
    Die("a tile is misaligned or outside of shared memory");
  static_cast<void>(MbarrierAt(OwnBlock(), mbarrier));
  OwnBlock().tiles.push_back({shared, mbarrier, column, row, plain});
  if (is_seeded() && Chance(4)) LandTile(OwnBlock());
}

bool Machine::LandAnyTile() {
  for (unsigned i = 0; i < used_blocks_; ++i) {
    if (LandTile(blocks_[i])) return true;
  }
  return false;
}

// Does one of the block's copies. Returns false if there is none.
bool Machine::LandTile(Block& block) {
  if (block.tiles.empty()) return false;
  const size_t chosen = is_seeded() ? random_() % block.tiles.size() : 0;
  const TileCopy copy = block.tiles[chosen];
  block.tiles.erase(block.tiles.begin() + static_cast<ptrdiff_t>(chosen));
  const device::PlainTensorMap& map = copy.map;
  const auto size = [&](int i) { return static_cast<int64_t>(map.sizes[i]); };
  for (uint32_t r = 0; r < map.box[1]; ++r) {
    const int64_t row = int64_t{copy.row} + r;
    for (uint32_t byte = 0; byte < kTileRowBytes; ++byte) {
      const int64_t column = int64_t{copy.column} + byte;
      const bool is_inside = row >= 0 && row < size(1) && column >= 0 && column < size(0);
      const auto* const from = std::bit_cast<const unsigned char*>(map.address);
      block.shared[copy.shared + PlaceInTile(r, byte)] =
          is_inside ? from[row * static_cast<int64_t>(map.strides[1]) + column] : 0;
    }
  }
  CompleteMbarrier(block, copy.mbarrier, 0, int64_t{map.box[1]} * kTileRowBytes);
  return true;
}

void Machine::Multiply(const Product& product) {
  const auto described = [&](uint64_t description) {
    constexpr uint64_t kStride = uint64_t{1024 >> 4} << 32, kMode = uint64_t{1} << 62;
    const uint64_t field = 0x3FFF;
    const auto begin = static_cast<uint32_t>((description & field) << 4);
    if ((description & ~field) != (kStride | kMode))
      Die("the emulator multiplies only rows of 128 bytes beside each other, exchanged within 128");
    if (begin % kTileAlignment >= kTileRowBytes)
      Die("a matrix does not begin where its tile begins");
    const uint32_t column = begin % kTileRowBytes;
    return DescribedRows{OwnBlock().shared + begin - column, column};
  };
  const DescribedRows a = described(product.a), b = described(product.b);
  const uint32_t lane = self_->index % kLanes, warp = self_->index / kLanes % 4;
  float rows[2][kTileDepth], column[kTileDepth];
  for (uint32_t half = 0; half < 2; ++half) a.Read(warp * 16 + lane / 4 + half * 8, rows[half]);
  for (int i = 0; i < product.columns / 2; i += 4) {
    for (int pair = 0; pair < 2; ++pair) {
      b.Read(static_cast<uint32_t>(i / 4 * 8 + pair) + lane % 4 * 2, column);
      for (int half = 0; half < 2; ++half) {
        float& d = product.d[i + half * 2 + pair];
        float sum = product.accumulates ? d : 0.0f;
        for (int k = 0; k < kTileDepth; ++k) sum += rows[half][k] * column[k];
        d = sum;
      }
    }
  }
}

void Machine::MultiplyGroup(float* d, int columns, uint64_t a, uint64_t b, bool accumulates) {
  if (grid_.threads / kLanes < self_->index / kLanes / 4 * 4 + 4)
    Die("a product by less than four warps");
  uint64_t all[kLanes];
  Collective("MultiplyGroup", &a, sizeof(a), all, 0, nullptr);
  for (const uint64_t other : all) {
    if (other != a) Die("the lanes of a warp multiply different matrices");
  }
  Thread& self = *self_;
  self.products.push_back({d, columns, a, b, accumulates, self.product_group});
  // Some products are computed at once, the others when a thread waits for them.
  if (is_seeded() && Chance(2)) EndProducts(self, self.product_group + 1);
}

// Computes the thread's products of groups before `group`, in order.
void Machine::EndProducts(Thread& thread, uint64_t group) {
  size_t count = 0;
  while (count < thread.products.size() && thread.products[count].group < group)
    Multiply(thread.products[count++]);
  thread.products.erase(thread.products.begin(),
                        thread.products.begin() + static_cast<ptrdiff_t>(count));
}

void Machine::CommitProducts() {
  ++self_->product_group;
}

void Machine::AwaitProducts(int pending) {
  MayYield();
  Thread& self = *self_;
  const auto most = static_cast<uint64_t>(pending);
  if (self.product_group >= most) EndProducts(self, self.product_group - most);
  // All lanes wait together.
  Collective("AwaitProducts", nullptr, 0, nullptr, 0, nullptr);
}

}  // namespace sluice::emulator
