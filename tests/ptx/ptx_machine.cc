#include "ptx_machine.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "ptx_numbers.h"

namespace sluice::ptx {

void Machine::Die(const Instruction& in, const char* what) const {
  fprintf(stderr, "%s, line %d, block (%u, %u, %u), thread %u: %s\n", kernel_->name.c_str(),
          in.line, block_.x, block_.y, block_.z, index_, what);
  exit(1);
}

void Machine::Run(const Kernel& kernel, const Extent& grid, unsigned threads, unsigned shared_bytes,
                  const void* args, uint64_t args_bytes, const Overlap* overlap) {
  kernel_ = &kernel;
  overlap_ = overlap;
  grid_ = grid;
  num_threads_ = threads;
  constexpr uint64_t kAlignment = 64;
  args_copy_.resize(args_bytes + kAlignment);
  const uint64_t begin = std::bit_cast<uint64_t>(args_copy_.data());
  args_ = args_copy_.data() + (kAlignment - begin % kAlignment) % kAlignment;
  memcpy(const_cast<unsigned char*>(args_), args, args_bytes);
  args_bytes_ = args_bytes;
  threads_.resize(threads);
  requests_.resize(threads / kLanes);
  count_ = &counts_[kernel.name];
  ++count_->launches;
  for (block_.z = 0; block_.z < grid.z; ++block_.z) {
    for (block_.y = 0; block_.y < grid.y; ++block_.y) {
      for (block_.x = 0; block_.x < grid.x; ++block_.x) {
        shared_.assign(shared_bytes, 0xFF);
        RunBlock();
      }
    }
  }
}

void Machine::Note(const Instruction& in, Space space, uint64_t address, uint64_t bytes) {
  if (space != Space::kShared && space != Space::kGlobal) return;
  const auto kind =
      space == Space::kShared ? WarpRequests::Kind::kShared : WarpRequests::Kind::kGlobal;
  requests_[index_ / kLanes].Add(index_ % kLanes,
                                 static_cast<uint32_t>(&in - kernel_->instructions.data()), kind,
                                 address, bytes);
}

void Machine::RunBlock() {
  in_flight_ = 0;
  bulk_copies_.clear();
  mbarriers_.clear();
  products_.assign(num_threads_ / kLanes, {});
  unfenced_.assign(kernel_->has_products ? (shared_.size() + 15) / 16 : 0, 0);
  std::ranges::fill(arrivals_, 0);
  for (Thread& thread : threads_) {
    thread.state = State::kRunning;
    thread.next = 0;
    thread.registers.assign(kernel_->num_registers, 0);
    thread.local.assign(kernel_->local_bytes, 0xFF);
    thread.copies.clear();
    thread.group = 0;
    thread.has_awaited = overlap_ == nullptr;
    thread.tried = nullptr;
    if (!kernel_->has_products) continue;
    thread.written_by.assign(kernel_->num_registers, 0);
    thread.used_at.assign(kernel_->num_registers, 0);
    thread.summed.assign(kernel_->num_registers, 0);
    thread.time = thread.fenced_at = 0;
  }
  while (true) {
    bool is_any_running = false;
    for (unsigned i = 0; i < num_threads_; ++i) {
      if (threads_[i].state == State::kRunning) RunThread(i);
    }
    for (unsigned warp = 0; warp < num_threads_ / kLanes; ++warp)
      is_any_running |= RunWarp(warp, /*waits_for_products=*/false);
    if (is_any_running || EndMbarrierWaits()) continue;
    for (WarpRequests& requests : requests_) requests.Count(*count_);
    if (EndBarriers() || EndProductWait()) continue;
    const auto is_done = [](const Thread& thread) { return thread.state == State::kDone; };
    if (!bulk_copies_.empty() && std::ranges::all_of(threads_, is_done))
      Die(*bulk_copies_.front().by, "the block ends with copies under way");
    if (EndBulkCopy()) continue;
    if (kernel_->has_products && std::ranges::all_of(threads_, is_done)) CheckProductsOfGroups();
    for (unsigned i = 0; i < num_threads_; ++i) {
      index_ = i;
      const Instruction& in =
          kernel_
              ->instructions[std::min<size_t>(threads_[i].next, kernel_->instructions.size() - 1)];
      switch (threads_[i].state) {
        case State::kAtWarp: Die(in, "a lane waits for others that never come");
        case State::kAtBarrier: Die(in, "a barrier waits for threads that never come");
        case State::kAtMbarrier: Die(in, "a phase of an mbarrier never ends");
        default: break;
      }
    }
    return;
  }
}

bool Machine::EndBarriers() {
  uint64_t waiting[kBarriers] = {}, expected[kBarriers] = {}, alive = 0;
  for (unsigned i = 0; i < num_threads_; ++i) {
    const Thread& thread = threads_[i];
    alive += thread.state != State::kDone;
    if (thread.state != State::kAtBarrier) continue;
    index_ = i;
    if (waiting[thread.barrier]++ > 0 && expected[thread.barrier] != thread.barrier_threads)
      Die(kernel_->instructions[thread.next - 1], "threads expect other numbers at one barrier");
    expected[thread.barrier] = thread.barrier_threads;
  }
  bool has_ended = false;
  for (uint64_t id = 0; id < kBarriers; ++id) {
    if (waiting[id] == 0) continue;
    const bool is_complete =
        expected[id] == 0 ? waiting[id] == alive : waiting[id] + arrivals_[id] == expected[id];
    if (!is_complete) continue;
    has_ended = true;
    arrivals_[id] = 0;
    for (Thread& thread : threads_) {
      if (thread.state == State::kAtBarrier && thread.barrier == id) thread.state = State::kRunning;
    }
  }
  return has_ended;
}

void Machine::Enter(const Instruction& in, Thread& thread) {
  const auto value = [&](size_t i) { return Value(thread, in.from_operands[i], Type::kB32); };
  thread.barrier = in.from_operands.empty() ? 0 : value(0);
  thread.barrier_threads = in.from_operands.size() > 1 ? value(1) : 0;
  if (thread.barrier >= kBarriers || thread.barrier_threads % kLanes != 0 ||
      thread.barrier_threads > num_threads_)
    Die(in, "a barrier beyond the 16 of a block, or for other than whole warps of the block");
}

void Machine::RunThread(unsigned index) {
  index_ = index;
  Thread& thread = threads_[index];
  while (thread.state == State::kRunning) {
    const Instruction& in = kernel_->instructions[thread.next];
    ++num_instructions_;
    if (in.guard.kind != Operand::Kind::kNone && (Value(thread, in.guard, Type::kPred) == 0)) {
      ++thread.next;
      continue;
    }
    if (kernel_->has_products) UseRegisters(in, thread);
    switch (in.op) {
      case Op::kBra: thread.next = in.target; break;
      case Op::kRet:
        if (!thread.copies.empty()) Die(in, "a thread ends with copies under way");
        EndProducts(index / kLanes);
        if (!thread.has_awaited) Die(in, "a thread ends without waiting for earlier kernels");
        thread.state = State::kDone;
        break;
      case Op::kBarrier:
        Enter(in, thread);
        thread.state = State::kAtBarrier;
        ++thread.next;
        break;
      case Op::kMbarrierWait: ExecuteMbarrier(in, thread); break;
      case Op::kElect:
      case Op::kProduct:
      case Op::kProductCommit:
      case Op::kProductFence:
      case Op::kProductWait:
      case Op::kStmatrix:
      case Op::kShfl:
      case Op::kVote:
      case Op::kLdmatrix:
      case Op::kMma:
      case Op::kWarpBarrier: thread.state = State::kAtWarp; break;
      default: Execute(in, thread); ++thread.next;
    }
  }
}

bool Machine::RunWarp(unsigned warp, bool waits_for_products) {
  Thread* lanes = &threads_[warp * kLanes];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if (lanes[lane].state != State::kAtWarp) return false;
  }
  const Instruction& in = kernel_->instructions[lanes[0].next];
  if ((in.op == Op::kProductWait) != waits_for_products) return false;
  index_ = warp * kLanes;
  for (unsigned lane = 1; lane < kLanes; ++lane) {
    if (lanes[lane].next != lanes[0].next) Die(in, "the lanes of a warp wait at different places");
  }
  ExecuteWarp(in, warp);
  requests_[warp].Count(*count_);
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    ++lanes[lane].next;
    lanes[lane].state = State::kRunning;
  }
  return true;
}

void Machine::ExecuteWarp(const Instruction& in, unsigned warp) {
  switch (in.op) {
    case Op::kShfl: return Shuffle(in, warp);
    case Op::kVote: return Vote(in, warp);
    case Op::kLdmatrix: return LoadMatrices(in, warp);
    case Op::kStmatrix: return StoreMatrices(in, warp);
    case Op::kElect: return Elect(in, warp);
    case Op::kMma: ++count_->products; return Multiply(in, warp);
    case Op::kProduct: return MultiplyGroup(in, warp);
    case Op::kProductWait: return WaitForProducts(in, warp);
    case Op::kProductCommit:
      ++products_[warp].group;
      products_[warp].is_open = false;
      return;
    case Op::kProductFence:
      for (unsigned i = 0; i < kLanes; ++i)
        threads_[warp * kLanes + i].fenced_at = ++threads_[warp * kLanes + i].time;
      return;
    default: return;
  }
}

uint64_t Machine::Special(uint64_t which) const {
  switch (which) {
    case kTidX: return index_;
    case kNtidX: return num_threads_;
    case kCtaidX: return block_.x;
    case kCtaidY: return block_.y;
    case kCtaidZ: return block_.z;
    case kNctaidX: return grid_.x;
    case kNctaidY: return grid_.y;
    case kNctaidZ: return grid_.z;
    default: return 0;  // blocks are one-dimensional
  }
}

uint64_t Machine::Raw(const Thread& thread, const Operand& operand) const {
  switch (operand.kind) {
    case Operand::Kind::kRegister: return thread.registers[operand.index];
    case Operand::Kind::kSpecial: return Special(operand.value);
    default: return operand.value;
  }
}

uint64_t Machine::Value(const Thread& thread, const Operand& operand, Type type) const {
  const uint64_t value = Masked(Raw(thread, operand), BitsOfType(type));
  return operand.is_negated ? uint64_t{value == 0} : value;
}

void Machine::Set(Thread& thread, const Operand& operand, uint64_t value) {
  thread.registers[operand.index] = value;
}

unsigned char* Machine::Address(const Instruction& in, Thread& thread, Space space, uint64_t place,
                                uint64_t bytes, uint64_t alignment) {
  const auto within = [&](std::vector<unsigned char>& memory) {
    if (place + bytes > memory.size()) Die(in, "an address beyond the block's or thread's memory");
    return memory.data() + place;
  };
  if (place % alignment != 0) Die(in, "an address that is no multiple of what is read or written");
  switch (space) {
    case Space::kShared: return within(shared_);
    case Space::kLocal: return within(thread.local);
    case Space::kParam:
      if (place + bytes > args_bytes_) Die(in, "an address beyond the arguments");
      return const_cast<unsigned char*>(args_) + place;
    case Space::kGlobal: return std::bit_cast<unsigned char*>(place);
    default: Die(in, "a generic address");
  }
}

void Machine::CheckOverlap(const Instruction& in, const Thread& thread, uint64_t place,
                           uint64_t bytes, bool reads) const {
  if (thread.has_awaited) return;
  for (const auto& [begin, size] : overlap_->constants) {
    if (reads && place >= begin && place + bytes <= begin + size) return;
  }
  Die(in, "global memory is used before the thread has waited for earlier kernels");
}

void Machine::Load(const Instruction& in, Thread& thread) {
  const int width = BitsOfType(in.type);
  const auto bytes = static_cast<uint64_t>(width / 8), count = uint64_t{in.to.size()};
  const uint64_t place = Raw(thread, in.from_operands[0]) + in.from_operands[1].value;
  const uint64_t at = in.space == Space::kShared ? Masked(place, 32) : place;
  const unsigned char* from = Address(in, thread, in.space, at, bytes * count, bytes * count);
  if (in.space == Space::kGlobal) CheckOverlap(in, thread, at, bytes * count, true);
  if (in.space == Space::kShared) UseShared(in, at, bytes * count, false);
  Note(in, in.space, at, bytes * count);
  for (const Operand& to : in.to) {
    uint64_t value = 0;
    memcpy(&value, from, bytes);
    from += bytes;
    Set(thread, to, IsSigned(in.type) ? static_cast<uint64_t>(SignedOf(value, width)) : value);
  }
}

void Machine::Store(const Instruction& in, Thread& thread) {
  const auto bytes = static_cast<uint64_t>(BitsOfType(in.type) / 8);
  const uint64_t count = in.from_operands.size() - 2;
  const uint64_t place = Raw(thread, in.from_operands[0]) + in.from_operands[1].value;
  const uint64_t at = in.space == Space::kShared ? Masked(place, 32) : place;
  unsigned char* to = Address(in, thread, in.space, at, bytes * count, bytes * count);
  if (in.space == Space::kGlobal) CheckOverlap(in, thread, at, bytes * count, false);
  if (in.space == Space::kShared) UseShared(in, at, bytes * count, true);
  Note(in, in.space, at, bytes * count);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t value = Value(thread, in.from_operands[2 + i], in.type);
    memcpy(to + i * bytes, &value, bytes);
  }
}

void Machine::Atomic(const Instruction& in, Thread& thread) {
  const auto bytes = static_cast<uint64_t>(BitsOfType(in.type) / 8);
  const uint64_t place = Raw(thread, in.from_operands[0]) + in.from_operands[1].value;
  const uint64_t at = in.space == Space::kShared ? Masked(place, 32) : place;
  unsigned char* memory = Address(in, thread, in.space, at, bytes, bytes);
  if (in.space == Space::kGlobal) CheckOverlap(in, thread, at, bytes, false);
  if (in.space == Space::kShared) UseShared(in, at, bytes, true);
  uint64_t old = 0;
  memcpy(&old, memory, bytes);
  uint64_t value = Value(thread, in.from_operands[2], in.type);
  if (in.op == Op::kAtomAdd) {
    Instruction add = in;
    add.op = Op::kAdd;
    value = Arithmetic(add, old, value, 0);
  }
  memcpy(memory, &value, bytes);
  Set(thread, in.to[0], old);
}

void Machine::Wait(Thread& thread, uint64_t pending) {
  size_t count = 0;
  while (count < thread.copies.size() && thread.copies[count].group + pending < thread.group) {
    const Copy& copy = thread.copies[count++];
    unsigned char* to = shared_.data() + copy.shared;
    memset(to, 0, 16);
    memcpy(to, std::bit_cast<const unsigned char*>(copy.global), copy.bytes);
    in_flight_ -= 16;
  }
  thread.copies.erase(thread.copies.begin(), thread.copies.begin() + static_cast<ptrdiff_t>(count));
}

void Machine::Execute(const Instruction& in, Thread& thread) {
  const auto arg = [&](size_t i, Type type) { return Value(thread, in.from_operands[i], type); };
  switch (in.op) {
    case Op::kLd: return Load(in, thread);
    case Op::kSt: return Store(in, thread);
    case Op::kAtomAdd:
    case Op::kAtomExch: return Atomic(in, thread);
    case Op::kMembar: return;  // only one block runs at a time
    case Op::kAwaitGrids: thread.has_awaited = true; return;
    case Op::kLetGrids: return;  // a later kernel begins after this one has ended
    case Op::kBarrierArrive:
      Enter(in, thread);
      if (thread.barrier_threads == 0) Die(in, "an arrival at a barrier for no number of threads");
      ++arrivals_[thread.barrier];
      return;
    case Op::kMbarrierInit:
    case Op::kMbarrierInvalidate:
    case Op::kMbarrierArrive:
    case Op::kMbarrierExpect: return ExecuteMbarrier(in, thread);
    case Op::kSetMaxRegisters: {
      const uint64_t count = in.from_operands[0].value;
      if (count % 8 != 0 || count < 24 || count > 256)
        Die(in, "a number of registers that is no multiple of 8 from 24 to 256");
      return;
    }
    case Op::kBulkCopy: return StartBulkCopy(in, thread);
    case Op::kTensorCopy: return StartTensorCopy(in, thread);
    case Op::kMbarrierFence: return FenceMbarriers();
    case Op::kProxyFence: return FenceProxies();
    case Op::kParamAddress:
      Set(thread, in.to[0], std::bit_cast<uint64_t>(args_) + arg(0, Type::kB64));
      return;
    case Op::kCommit: ++thread.group; return;
    case Op::kWaitGroup: return Wait(thread, in.from_operands[0].value);
    case Op::kCopyAsync: {
      const uint64_t shared = arg(0, Type::kB32) + in.from_operands[1].value;
      const uint64_t global = arg(2, Type::kB64) + in.from_operands[3].value;
      const uint64_t bytes = arg(5, Type::kU32);
      static_cast<void>(Address(in, thread, Space::kShared, shared, 16, 16));
      if (global % 16 != 0 || in.from_operands[4].value != 16 || bytes > 16)
        Die(in, "a copy that is not one of 16 aligned bytes");
      if (bytes > 0) CheckOverlap(in, thread, global, bytes, true);
      UseShared(in, shared, 16, true);
      thread.copies.push_back({shared, global, bytes, thread.group});
      Note(in, Space::kShared, shared, 16);
      if (bytes > 0) Note(in, Space::kGlobal, global, bytes);
      in_flight_ += 16;
      count_->most_in_flight = std::max(count_->most_in_flight, in_flight_);
      return;
    }
    case Op::kMov: {
      const int width = BitsOfType(in.type);
      // This instruction packs, unpacks, or moves.
      if (in.to.size() > 1) {
        const uint64_t value = arg(0, in.type);
        const int part = width / static_cast<int>(in.to.size());
        for (size_t i = 0; i < in.to.size(); ++i)
          Set(thread, in.to[i], Masked(value >> (static_cast<int>(i) * part), part));
        return;
      }
      uint64_t value = 0;
      const int part = width / static_cast<int>(in.from_operands.size());
      for (size_t i = 0; i < in.from_operands.size(); ++i) {
        const uint64_t piece = in.from_operands.size() == 1
                                   ? arg(0, in.type)
                                   : Masked(Raw(thread, in.from_operands[i]), part);
        value |= piece << (static_cast<int>(i) * part);
      }
      Set(thread, in.to[0], value);
      return;
    }
    case Op::kSetp: {
      const bool holds = Holds(in, arg(0, in.type), arg(1, in.type));
      Set(thread, in.to[0], uint64_t{holds});
      if (in.to.size() > 1) Set(thread, in.to[1], uint64_t{!holds});
      return;
    }
    case Op::kSelp:
      Set(thread, in.to[0], arg(2, Type::kPred) != 0 ? arg(0, in.type) : arg(1, in.type));
      return;
    case Op::kCvt: {
      const uint64_t second = in.from_operands.size() > 1 ? arg(1, in.from) : 0;
      const uint64_t value = Convert(in, arg(0, in.from), second);
      // Registers may be wider than a signed result.
      const int width = BitsOfType(in.type);
      Set(thread, in.to[0],
          IsSigned(in.type) ? static_cast<uint64_t>(SignedOf(value, width)) : Masked(value, width));
      return;
    }
    case Op::kPrmt:
      Set(thread, in.to[0],
          PermuteBytes(arg(0, Type::kB32), arg(1, Type::kB32), arg(2, Type::kB32)));
      return;
    case Op::kBfi: {
      const uint64_t a = arg(0, in.type), b = arg(1, in.type);
      const uint64_t place = arg(2, Type::kU32) & 0xFF, length = arg(3, Type::kU32) & 0xFF;
      uint64_t mask = length >= 64 ? ~uint64_t{0} : (uint64_t{1} << length) - 1;
      mask = place >= 64 ? 0 : mask << place;
      const uint64_t moved = place >= 64 ? 0 : a << place;
      Set(thread, in.to[0], Masked((b & ~mask) | (moved & mask), BitsOfType(in.type)));
      return;
    }
    default: break;
  }
  Type second = in.type, result = in.type, third = in.type;
  if (in.op == Op::kShl || in.op == Op::kShr) second = Type::kU32;
  if (in.is_wide) {
    third = BitsOfType(in.type) == 16 ? Type::kB32 : Type::kB64;
    result = third;
  }
  if (in.op == Op::kBfind || in.op == Op::kPopc) result = Type::kU32;
  const size_t count = in.from_operands.size();
  const uint64_t value = Arithmetic(in, arg(0, in.type), count > 1 ? arg(1, second) : 0,
                                    count > 2 ? arg(2, third) : 0);
  Set(thread, in.to[0], Masked(value, BitsOfType(result)));
}

void Machine::Shuffle(const Instruction& in, unsigned warp) {
  Thread* lanes = &threads_[warp * kLanes];
  uint64_t values[kLanes];
  for (unsigned i = 0; i < kLanes; ++i)
    values[i] = Value(lanes[i], in.from_operands[0], Type::kB32);
  for (unsigned i = 0; i < kLanes; ++i) {
    const auto lane = static_cast<int>(i);
    const auto by = static_cast<int>(Value(lanes[i], in.from_operands[1], Type::kB32) & 31);
    const auto control = static_cast<int>(Value(lanes[i], in.from_operands[2], Type::kB32));
    const int clamp = control & 31, segment = control >> 8 & 31;
    const int most = (lane & segment) | (clamp & ~segment), least = lane & segment;
    int from = lane;
    bool is_within = false;
    switch (in.shape) {
      case Shape::kUp: is_within = (from = lane - by) >= most; break;
      case Shape::kDown: is_within = (from = lane + by) <= most; break;
      case Shape::kButterfly: is_within = (from = lane ^ by) <= most; break;
      default: is_within = (from = least | (by & ~segment)) <= most;
    }
    if (!is_within) from = lane;
    Set(lanes[i], in.to[0], values[from]);
    if (in.to.size() > 1) Set(lanes[i], in.to[1], uint64_t{is_within});
  }
}

void Machine::Vote(const Instruction& in, unsigned warp) {
  Thread* lanes = &threads_[warp * kLanes];
  uint64_t votes = 0;
  for (unsigned i = 0; i < kLanes; ++i)
    votes |= Value(lanes[i], in.from_operands[0], Type::kPred) << i;
  for (unsigned i = 0; i < kLanes; ++i) Set(lanes[i], in.to[0], votes);
}

// Lane 8 m + i has the address of row i of matrix m. Lane l gets two neighbours of row l / 4, or of
// column l / 4 if the matrix is transposed.
void Machine::LoadMatrices(const Instruction& in, unsigned warp) {
  Thread* lanes = &threads_[warp * kLanes];
  uint16_t matrices[4][8][8];
  for (unsigned i = 0; i < kLanes; ++i) {
    const uint64_t place =
        Value(lanes[i], in.from_operands[0], Type::kB32) + in.from_operands[1].value;
    index_ = warp * kLanes + i;
    memcpy(matrices[i / 8][i % 8], Address(in, lanes[i], Space::kShared, place, 16, 16), 16);
    UseShared(in, place, 16, false);
    Note(in, Space::kShared, place, 16);
  }
  for (unsigned i = 0; i < kLanes; ++i) {
    for (unsigned m = 0; m < 4; ++m) {
      uint64_t pair = 0;
      for (unsigned k = 0; k < 2; ++k) {
        const unsigned along = i % 4 * 2 + k, across = i / 4;
        const uint16_t element =
            in.is_transposed ? matrices[m][along][across] : matrices[m][across][along];
        pair |= uint64_t{element} << (16 * k);
      }
      Set(lanes[i], in.to[m], pair);
    }
  }
}

// The reverse of LoadMatrices.
void Machine::StoreMatrices(const Instruction& in, unsigned warp) {
  Thread* lanes = &threads_[warp * kLanes];
  for (unsigned i = 0; i < kLanes; ++i) {
    const unsigned m = i / 8;
    uint16_t row[8];
    for (unsigned column = 0; column < 8; ++column) {
      const unsigned across = in.is_transposed ? column : i % 8;
      const unsigned along = in.is_transposed ? i % 8 : column;
      const uint64_t pair =
          Value(lanes[across * 4 + along / 2], in.from_operands[2 + m], Type::kB32);
      row[column] = static_cast<uint16_t>(pair >> (16 * (along % 2)));
    }
    const uint64_t place =
        Value(lanes[i], in.from_operands[0], Type::kB32) + in.from_operands[1].value;
    index_ = warp * kLanes + i;
    memcpy(Address(in, lanes[i], Space::kShared, place, 16, 16), row, 16);
    UseShared(in, place, 16, true);
    Note(in, Space::kShared, place, 16);
  }
}

void Machine::Elect(const Instruction& in, unsigned warp) {
  Thread* lanes = &threads_[warp * kLanes];
  for (unsigned i = 0; i < kLanes; ++i) {
    if (Value(lanes[i], in.from_operands[0], Type::kB32) != 0xFFFFFFFFu)
      Die(in, "an election among other than all lanes");
    if (in.to[0].kind == Operand::Kind::kRegister) Set(lanes[i], in.to[0], 0);
    Set(lanes[i], in.to[1], uint64_t{i == 0});
  }
}

// Computes d = a b + c with the fragments of m16n8k16 and m16n8k32 that the ISA shows.
void Machine::Multiply(const Instruction& in, unsigned warp) {
  Thread* lanes = &threads_[warp * kLanes];
  const bool is_bytes = in.from == Type::kE4m3;
  const unsigned per_register = is_bytes ? 4 : 2, depth = 8 * per_register;
  float a[16][32], b[32][8], c[16][8];
  const auto number = [&](uint64_t bits, unsigned i) {
    if (is_bytes) return static_cast<float>(E4m3ToDouble(static_cast<uint8_t>(bits >> (8 * i))));
    const auto code = static_cast<uint16_t>(bits >> (16 * i));
    return static_cast<float>(in.from == Type::kF16 ? F16ToDouble(code) : Bf16ToDouble(code));
  };
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const unsigned group = lane >> 2, in_group = lane % 4;
    for (unsigned r = 0; r < 4; ++r) {
      const uint64_t bits = Value(lanes[lane], in.from_operands[r], Type::kB32);
      const unsigned row = r == 0 || r == 2 ? group : group + 8;
      for (unsigned i = 0; i < per_register; ++i)
        a[row][in_group * per_register + i + (r >= 2 ? depth / 2 : 0)] = number(bits, i);
      c[r < 2 ? group : group + 8][in_group * 2 + (r & 1)] =
          F32Of(Value(lanes[lane], in.from_operands[6 + r], Type::kB32));
    }
    for (unsigned r = 0; r < 2; ++r) {
      const uint64_t bits = Value(lanes[lane], in.from_operands[4 + r], Type::kB32);
      for (unsigned i = 0; i < per_register; ++i)
        b[in_group * per_register + i + r * depth / 2][group] = number(bits, i);
    }
  }
  for (auto& row : c) {
    for (unsigned n = 0; n < 8; ++n) {
      const auto m = static_cast<unsigned>(&row - c);
      for (unsigned k = 0; k < depth; ++k) row[n] += a[m][k] * b[k][n];
    }
  }
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    for (unsigned r = 0; r < 4; ++r)
      Set(lanes[lane], in.to[r],
          BitsOfF32(c[(lane >> 2) + (r < 2 ? 0 : 8)][lane % 4 * 2 + (r & 1)]));
  }
}

}  // namespace sluice::ptx
