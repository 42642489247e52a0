// What runs beside the threads of a block: copies that an mbarrier counts, and the matrix products
// of warpgroups (wgmma).
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "device/plain_tensor_map.h"
#include "ptx_machine.h"
#include "ptx_numbers.h"

namespace sluice::ptx {
namespace {

bool Intersect(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

// The swizzles of the ISA: bits 4 to 6 of an address in shared memory are exclusive or'd with as
// many of the bits from 7 on as are needed to exchange pieces of 16 bytes within `span` bytes.
uint64_t Swizzled(uint64_t address, uint64_t span) {
  const uint64_t pieces = span / 16;
  return pieces <= 1 ? address : address ^ (address >> 7 & (pieces - 1)) << 4;
}

float NumberOf(Type type, const unsigned char* bytes) {
  static const std::array<float, 256> kE4m3 = [] {
    std::array<float, 256> values;
    for (unsigned i = 0; i < 256; ++i)
      values[i] = static_cast<float>(E4m3ToDouble(static_cast<uint8_t>(i)));
    return values;
  }();
  if (type == Type::kE4m3) return kE4m3[*bytes];
  uint16_t code;
  memcpy(&code, bytes, sizeof(code));
  return F32Of(uint64_t{code} << 16);
}

}  // namespace

bool Machine::EndBulkCopy() {
  if (bulk_copies_.empty()) return false;
  random_ = random_ * 1664525u + 1013904223u;
  const auto chosen =
      bulk_copies_.begin() + static_cast<ptrdiff_t>((random_ >> 8) % bulk_copies_.size());
  const BulkCopy copy = std::move(*chosen);
  bulk_copies_.erase(chosen);
  for (const CopiedPiece& piece : copy.pieces) {
    unsigned char* to = shared_.data() + piece.shared;
    memset(to, 0, piece.all_bytes);
    memcpy(to + piece.skipped, std::bit_cast<const unsigned char*>(piece.global), piece.bytes);
  }
  in_flight_ -= static_cast<int64_t>(copy.bytes);
  const auto mbarrier = mbarriers_.find(copy.mbarrier);
  if (mbarrier == mbarriers_.end()) Die(*copy.by, "the mbarrier of a copy under way is gone");
  Complete(*copy.by, mbarrier->second, 0, static_cast<int64_t>(copy.bytes));
  return true;
}

bool Machine::EndProductWait() {
  if (!kernel_->has_products) return false;
  for (unsigned warp = 0; warp < num_threads_ / kLanes; ++warp) {
    if (RunWarp(warp, /*waits_for_products=*/true)) return true;
  }
  return false;
}

bool Machine::EndMbarrierWaits() {
  bool has_ended = false;
  for (unsigned i = 0; i < num_threads_; ++i) {
    if (threads_[i].state != State::kAtMbarrier) continue;
    threads_[i].state = State::kRunning;
    index_ = i;
    ExecuteMbarrier(kernel_->instructions[threads_[i].next], threads_[i]);
    has_ended |= threads_[i].state == State::kRunning;
  }
  return has_ended;
}

Machine::Mbarrier& Machine::MbarrierAt(const Instruction& in, const Thread& thread,
                                       uint64_t place) {
  static_cast<void>(Address(in, const_cast<Thread&>(thread), Space::kShared, place, 8, 8));
  const auto found = mbarriers_.find(place);
  if (found == mbarriers_.end()) Die(in, "there is no mbarrier");
  return found->second;
}

void Machine::Complete(const Instruction& in, Mbarrier& mbarrier, uint64_t arrivals,
                       int64_t bytes) {
  if (arrivals > mbarrier.pending) Die(in, "more arrivals than the mbarrier counts in a phase");
  mbarrier.pending -= arrivals;
  mbarrier.pending_bytes -= bytes;
  if (mbarrier.pending > 0 || mbarrier.pending_bytes != 0) return;
  ++mbarrier.phase;
  mbarrier.pending = mbarrier.count;
}

void Machine::ExecuteMbarrier(const Instruction& in, Thread& thread) {
  const auto arg = [&](size_t i) { return Value(thread, in.from_operands[i], Type::kB32); };
  const uint64_t place = Masked(arg(0) + in.from_operands[1].value, 32);
  if (in.op == Op::kMbarrierInit) {
    static_cast<void>(Address(in, thread, Space::kShared, place, 8, 8));
    const uint64_t count = arg(2);
    const Mbarrier mbarrier{.count = count, .pending = count, .by = index_};
    if (count == 0 || !mbarriers_.emplace(place, mbarrier).second)
      Die(in, "an mbarrier that counts nothing, or one that is there already");
    return;
  }
  Mbarrier& mbarrier = MbarrierAt(in, thread, place);
  switch (in.op) {
    case Op::kMbarrierInvalidate: mbarriers_.erase(place); return;
    case Op::kMbarrierWait: {
      const bool is_over = mbarrier.phase % 2 != (arg(2) & 1);
      // An attempt may fail at any time, so the first one does.
      if (!is_over && thread.tried == &in) {
        thread.state = State::kAtMbarrier;
        return;
      }
      thread.tried = is_over ? nullptr : &in;
      Set(thread, in.to[0], uint64_t{is_over});
      ++thread.next;
      return;
    }
    default: {
      const uint64_t phase = mbarrier.phase;
      if (in.op == Op::kMbarrierExpect) mbarrier.pending_bytes += static_cast<int64_t>(arg(2));
      const bool has_count = in.op == Op::kMbarrierArrive && in.from_operands.size() > 2;
      Complete(in, mbarrier, has_count ? arg(2) : 1, 0);
      if (in.to[0].kind == Operand::Kind::kRegister) Set(thread, in.to[0], phase);
    }
  }
}

void Machine::StartBulkCopy(const Instruction& in, Thread& thread) {
  const auto arg = [&](size_t i, Type type) { return Value(thread, in.from_operands[i], type); };
  const uint64_t shared = Masked(arg(0, Type::kB32) + in.from_operands[1].value, 32);
  const uint64_t global = arg(2, Type::kB64) + in.from_operands[3].value;
  const uint64_t bytes = arg(4, Type::kU32);
  if (bytes % 16 != 0 || global % 16 != 0)
    Die(in, "a copy of other than whole, aligned pieces of 16 bytes");
  static_cast<void>(Address(in, thread, Space::kShared, shared, bytes, 16));
  CheckOverlap(in, thread, global, bytes, true);
  const uint64_t mbarrier = Masked(arg(5, Type::kB32) + in.from_operands[6].value, 32);
  Start(in, thread, {shared, bytes, mbarrier, &in, {{shared, bytes, global, 0, bytes}}});
}

void Machine::StartTensorCopy(const Instruction& in, Thread& thread) {
  const auto arg = [&](size_t i, Type type) { return Value(thread, in.from_operands[i], type); };
  const uint64_t shared = Masked(arg(0, Type::kB32) + in.from_operands[1].value, 32);
  const uint64_t address = arg(2, Type::kB64) + in.from_operands[3].value;
  const size_t rank = in.from_operands.size() - 6;  // two for each of three addresses
  const uint64_t mbarrier =
      Masked(arg(4 + rank, Type::kB32) + in.from_operands[5 + rank].value, 32);
  if (address % alignof(device::TensorMap) != 0) Die(in, "a tensor map is aligned to 64 bytes");
  device::PlainTensorMap map;
  memcpy(&map, std::bit_cast<const void*>(address), sizeof(map));
  if (map.magic != device::PlainTensorMap::kMagic || map.rank != rank)
    Die(in, "there is no tensor map of this rank");
  const uint64_t element = map.strides[0], row_bytes = map.box[0] * element;
  const uint64_t span = map.swizzle == device::TensorSwizzle::kNone
                            ? 16
                            : uint64_t{16} << static_cast<int>(map.swizzle);
  if (map.swizzle != device::TensorSwizzle::kNone && row_bytes != span)
    Die(in, "a tile whose rows are not as wide as its swizzle");
  int64_t first[device::kMostTensorRank] = {};
  for (size_t i = 0; i < rank; ++i) first[i] = SignedOf(arg(4 + i, Type::kB32), 32);
  const uint64_t bytes = row_bytes * map.box[1] * map.box[2];
  static_cast<void>(Address(in, thread, Space::kShared, shared, bytes, 128));
  BulkCopy copy{shared, bytes, mbarrier, &in, {}};
  uint64_t place = shared, last_sector = ~uint64_t{0};
  const auto size = [&](size_t i) { return static_cast<int64_t>(map.sizes[i]); };
  for (int64_t z = first[2]; z < first[2] + map.box[2]; ++z) {
    for (int64_t y = first[1]; y < first[1] + map.box[1]; ++y) {
      const bool is_inside = z >= 0 && z < size(2) && y >= 0 && y < size(1);
      const auto numbers = static_cast<int64_t>(16 / element);
      for (int64_t x = first[0]; x < first[0] + map.box[0]; x += numbers, place += 16) {
        const int64_t begin = std::max(x, int64_t{0}), end = std::min(x + numbers, size(0));
        CopiedPiece piece{Swizzled(place, span), 16, 0, 0, 0};
        if (is_inside && begin < end) {
          piece.skipped = static_cast<uint64_t>(begin - x) * element;
          piece.bytes = static_cast<uint64_t>(end - begin) * element;
          piece.global = map.address + static_cast<uint64_t>(begin) * element +
                         static_cast<uint64_t>(y) * map.strides[1] +
                         static_cast<uint64_t>(z) * map.strides[2];
          CheckOverlap(in, thread, piece.global, piece.bytes, true);
          count_->global_bytes += static_cast<int64_t>(piece.bytes);
          for (uint64_t sector = piece.global / 32; sector * 32 < piece.global + piece.bytes;
               ++sector) {
            count_->sectors += sector != last_sector;
            last_sector = sector;
          }
        }
        copy.pieces.push_back(piece);
      }
    }
  }
  Start(in, thread, std::move(copy));
}

void Machine::Start(const Instruction& in, Thread& thread, BulkCopy copy) {
  const Mbarrier& mbarrier = MbarrierAt(in, thread, copy.mbarrier);
  if (!mbarrier.is_fenced) Die(in, "an mbarrier is used by a copy, but not fenced");
  CheckNotCopied(in, copy.shared, copy.bytes);
  CheckNotProductRead(in, copy.shared, copy.bytes);
  in_flight_ += static_cast<int64_t>(copy.bytes);
  count_->most_in_flight = std::max(count_->most_in_flight, in_flight_);
  bulk_copies_.push_back(std::move(copy));
}

void Machine::FenceMbarriers() {
  for (auto& [place, mbarrier] : mbarriers_) mbarrier.is_fenced |= mbarrier.by == index_;
}

void Machine::FenceProxies() {
  FenceMbarriers();
  for (uint32_t& writer : unfenced_) {
    if (writer == index_ + 1) writer = 0;
  }
}

void Machine::CheckNotCopied(const Instruction& in, uint64_t place, uint64_t bytes) const {
  for (const BulkCopy& copy : bulk_copies_) {
    if (Intersect(place, bytes, copy.shared, copy.bytes))
      Die(in, "shared memory is used while a copy to it is under way");
  }
}

void Machine::CheckNotProductRead(const Instruction& in, uint64_t place, uint64_t bytes) const {
  for (const WarpProducts& products : products_) {
    for (const ProductRead& read : products.reads) {
      if (Intersect(place, bytes, read.begin, read.end - read.begin))
        Die(in, "shared memory is written that a product may still read");
    }
  }
}

void Machine::UseShared(const Instruction& in, uint64_t place, uint64_t bytes, bool writes) {
  CheckNotCopied(in, place, bytes);
  if (!writes || unfenced_.empty()) return;
  CheckNotProductRead(in, place, bytes);
  for (uint64_t at = place / 16; at * 16 < place + bytes; ++at) unfenced_[at] = index_ + 1;
}

void Machine::UseRegisters(const Instruction& in, Thread& thread) {
  if (in.op == Op::kProduct) return;
  ++thread.time;
  const WarpProducts& products = products_[index_ / kLanes];
  const auto is_written = [&](const Operand& operand) {
    return operand.kind == Operand::Kind::kRegister &&
           thread.written_by[operand.index] > products.completed;
  };
  // Another name of a register. The compiler adds such moves.
  if (in.op == Op::kMov && in.to.size() == 1 && in.from_operands.size() == 1 &&
      in.from_operands[0].kind == Operand::Kind::kRegister) {
    const uint32_t to = in.to[0].index, from = in.from_operands[0].index;
    if (is_written(in.to[0]) && !is_written(in.from_operands[0]))
      Die(in, "a register is used before the product that writes it is waited for");
    thread.written_by[to] = thread.written_by[from];
    thread.used_at[to] = thread.used_at[from];
    thread.summed[to] = thread.summed[from];
    return;
  }
  for (const std::vector<Operand>* operands : {&in.to, &in.from_operands}) {
    for (const Operand& operand : *operands) {
      if (operand.kind != Operand::Kind::kRegister) continue;
      if (is_written(operand))
        Die(in, "a register is used before the product that writes it is waited for");
      thread.used_at[operand.index] = thread.time;
    }
  }
}

void Machine::ReadOperandRow(const Instruction& in, unsigned warp, uint64_t descriptor,
                             unsigned row, float* numbers) {
  const auto field = [&](int at) { return (descriptor >> at & 0x3FFF) * 16; };
  const uint64_t begin = field(0), along = field(16), across = field(32);
  constexpr uint64_t kSpans[] = {16, 128, 64, 32};
  const uint64_t span = kSpans[descriptor >> 62], group_bytes = 8 * span;
  if ((descriptor >> 49 & 7) != 0) Die(in, "a matrix with a base offset");
  if (span > 16 && begin % group_bytes >= span)
    Die(in, "a matrix that does not begin where its swizzle begins");
  if (span > 16 && begin % span + 32 > span) Die(in, "columns beyond the swizzle's bytes");
  unsigned char bytes[32];
  ProductRead read{~uint64_t{0}, 0, products_[warp].group};
  for (uint64_t piece = 0; piece < 2; ++piece) {
    const uint64_t plain =
        begin + row / 8 * across + row % 8 * span + piece * (span > 16 ? 16 : along);
    const uint64_t place = Swizzled(plain, span);
    memcpy(bytes + piece * 16, Address(in, threads_[index_], Space::kShared, place, 16, 16), 16);
    CheckNotCopied(in, place, 16);
    if (unfenced_[place / 16] != 0)
      Die(in, "a product reads what a thread stored, without a fence of proxies");
    products_[warp].reads.push_back({place, place + 16, read.group});
  }
  const unsigned width = in.from == Type::kE4m3 ? 1 : 2;
  for (unsigned i = 0; i < 32 / width; ++i) numbers[i] = NumberOf(in.from, bytes + i * width);
}

// Computes the warp's 16 of the 64 rows of d = a b + d. Both operands lie in shared memory, with
// neighbouring columns (of a) or rows (of b) beside each other.
void Machine::MultiplyGroup(const Instruction& in, unsigned warp) {
  Thread* lanes = &threads_[warp * kLanes];
  WarpProducts& products = products_[warp];
  if (num_threads_ / kLanes < warp / 4 * 4 + 4) Die(in, "a product by less than four warps");
  if (in.to.size() != in.columns / 2) Die(in, "a product with another number of registers");
  const auto& from = in.from_operands;
  const size_t num_signs = in.from == Type::kE4m3 ? 2 : 4;
  if (from.size() != 3 + num_signs) Die(in, "a product with other operands than descriptors");
  uint64_t args[3];
  for (size_t i = 0; i < 3; ++i) {
    args[i] = Value(lanes[0], from[i], i < 2 ? Type::kB64 : Type::kPred);
    for (unsigned lane = 1; lane < kLanes; ++lane) {
      if (Value(lanes[lane], from[i], i < 2 ? Type::kB64 : Type::kPred) != args[i])
        Die(in, "the lanes of a product have different operands");
    }
  }
  for (size_t i = 0; i < num_signs; ++i) {
    if (from[3 + i].value != (i < 2 ? 1 : 0)) Die(in, "a negated or transposed operand");
  }
  const unsigned depth = in.from == Type::kE4m3 ? 32 : 16;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    index_ = warp * kLanes + lane;
    Thread& thread = lanes[lane];
    if (thread.fenced_at == 0) Die(in, "a product without a fence");
    for (const Operand& operand : in.to) {
      if (thread.used_at[operand.index] > thread.fenced_at)
        Die(in, "a product uses a register after other instructions, without a fence");
      thread.written_by[operand.index] = products.group;
      uint32_t& summed = thread.summed[operand.index];
      summed = (args[2] != 0 ? summed : 0) + depth;
      if (in.from == Type::kE4m3 && summed > most_e4m3_products_)
        Die(in, "a sum of more E4M3 products than its precision allows");
    }
  }
  index_ = warp * kLanes;
  products.is_open = true;
  ++products.count;
  count_->products += in.columns / 8;
  std::vector<std::array<float, 32>> a(16), b(in.columns);
  for (unsigned row = 0; row < 16; ++row)
    ReadOperandRow(in, warp, args[0], warp % 4 * 16 + row, a[row].data());
  for (unsigned n = 0; n < in.columns; ++n) ReadOperandRow(in, warp, args[1], n, b[n].data());
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    for (unsigned i = 0; i < in.columns / 2; ++i) {
      const unsigned row = lane / 4 + (i / 2 % 2) * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      float sum = args[2] != 0 ? F32Of(Value(lanes[lane], in.to[i], Type::kB32)) : 0.0f;
      for (unsigned k = 0; k < depth; ++k) sum += a[row][k] * b[column][k];
      Set(lanes[lane], in.to[i], BitsOfF32(sum));
    }
  }
}

void Machine::WaitForProducts(const Instruction& in, unsigned warp) {
  WarpProducts& products = products_[warp];
  const uint64_t pending = in.from_operands[0].value, ended = products.group - 1;
  if (pending < ended)
    products.completed = std::max(products.completed, static_cast<uint32_t>(ended - pending));
  std::erase_if(products.reads,
                [&](const ProductRead& read) { return read.group <= products.completed; });
}

void Machine::EndProducts(unsigned warp) {
  if (!kernel_->has_products) return;
  const WarpProducts& products = products_[warp];
  const Instruction& in = kernel_->instructions[threads_[index_].next];
  if (products.is_open || products.completed + 1 < products.group)
    Die(in, "a thread ends with products under way");
}

void Machine::CheckProductsOfGroups() {
  for (unsigned warp = 0; warp < products_.size(); ++warp) {
    index_ = warp * kLanes;
    if (products_[warp].count != products_[warp / 4 * 4].count)
      Die(kernel_->instructions.back(), "the warps of a group did unlike numbers of products");
  }
}

}  // namespace sluice::ptx
