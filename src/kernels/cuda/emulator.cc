#include "kernels/cuda/emulator.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>

#include "device/emulated_queue.h"

namespace sluice::emulator {
namespace {

constexpr unsigned kLanes = 32;
constexpr int kMostBytes = 64;  // that a lane gives to a collective
constexpr unsigned kMostBlocksYZ = 65535;
constexpr unsigned kMostSharedBytes = 99 * 1024;  // the least of the devices that are compiled for
constexpr size_t kStackBytes = size_t{64} << 10;

struct PendingCopy {
  void* shared;
  const void* global;
  bool is_valid;
};

struct Thread {
  boost::context::fiber fiber;  // where it goes on
  Index3 index;
  bool is_done = true;
  bool at_barrier = false;
  bool in_collective = false;
  std::vector<std::vector<PendingCopy>> groups;  // committed, the oldest first
  std::vector<PendingCopy> open_group;
};

struct Warp {
  const char* what = nullptr;
  unsigned num_lanes = 0;  // alive
  unsigned num_arrived = 0;
  // Of the collective under way and the one before, whose results slow lanes have yet to read.
  uint64_t generation = 0;
  alignas(16) unsigned char inputs[2][kLanes * kMostBytes];
  alignas(16) unsigned char outputs[2][kLanes * kMostBytes];
};

class Machine {
 public:
  void Run(const char* name, const Grid& grid, const std::function<void()>& body) {
    name_ = name;
    if (grid.threads == 0 || grid.threads > 1024 || grid.threads % kLanes != 0)
      Die("a block has 32 to 1024 threads, in whole warps");
    if (grid.x > 0x7FFFFFFFu || grid.y > kMostBlocksYZ || grid.z > kMostBlocksYZ)
      Die("a grid has at most 2^31 - 1 x 65535 x 65535 blocks");
    if (grid.shared_bytes > kMostSharedBytes) Die("a block has at most 99 KiB of shared memory");
    body_ = &body;
    // New for each launch: a checker of addresses sees what lies beyond its end.
    shared_ = std::make_unique<unsigned char[]>(grid.shared_bytes + 128);
    position_.grid = {grid.x, grid.y, grid.z};
    position_.threads = {grid.threads, 1, 1};
    threads_.resize(grid.threads);
    warps_.resize(grid.threads / kLanes);
    for (unsigned z = 0; z < grid.z; ++z) {
      for (unsigned y = 0; y < grid.y; ++y) {
        for (unsigned x = 0; x < grid.x; ++x) {
          position_.block = order_ == Order::kForward
                                ? Index3{x, y, z}
                                : Index3{grid.x - 1 - x, grid.y - 1 - y, grid.z - 1 - z};
          memset(shared_.get(), 0xFF, grid.shared_bytes + 128);
          RunBlock();
        }
      }
    }
    shared_.reset();
  }

  unsigned char* SharedMemory() {
    const auto address = reinterpret_cast<uintptr_t>(shared_.get());
    return shared_.get() + (128 - address % 128) % 128;
  }

  void Barrier() {
    Self().at_barrier = true;
    Yield();
  }

  void Collective(const char* what, const void* input, int input_bytes, void* output,
                  int output_bytes, Combine combine) {
    const unsigned lane = position_.thread.x % kLanes;
    Warp& warp = warps_[position_.thread.x / kLanes];
    if (warp.num_lanes != kLanes) Die("a warp's function was called after a lane had ended");
    const uint64_t generation = warp.generation;
    const size_t half = generation % 2;
    if (warp.num_arrived == 0) {
      warp.what = what;
    } else if (warp.what != what && strcmp(warp.what, what) != 0) {
      Die("the lanes of a warp called different functions");
    }
    memcpy(warp.inputs[half] + lane * input_bytes, input, input_bytes);
    if (++warp.num_arrived == kLanes) {
      if (combine != nullptr) combine(warp.inputs[half], warp.outputs[half]);
      warp.num_arrived = 0;
      ++warp.generation;
    } else {
      Self().in_collective = true;
      while (warp.generation == generation) Yield();
      Self().in_collective = false;
    }
    if (combine != nullptr) {
      memcpy(output, warp.outputs[half] + lane * output_bytes, output_bytes);
    } else {
      memcpy(output, warp.inputs[half], kLanes * input_bytes);
    }
  }

  Thread& Self() { return threads_[position_.thread.x]; }
  Position& position() { return position_; }
  void set_order(Order order) { order_ = order; }

  [[noreturn]] void Die(const char* what) const {
    fprintf(stderr, "emulated kernel %s, block (%u, %u, %u), thread %u: %s\n", name_,
            position_.block.x, position_.block.y, position_.block.z, position_.thread.x, what);
    abort();
  }

 private:
  void Start(unsigned index) {
    Thread& thread = threads_[index];
    thread.index = {index, 0, 0};
    thread.is_done = thread.at_barrier = thread.in_collective = false;
    thread.groups.clear();
    thread.open_group.clear();
    thread.fiber = boost::context::fiber(std::allocator_arg, stacks_,
                                         [this, index](boost::context::fiber&& back) {
                                           scheduler_ = std::move(back);
                                           (*body_)();
                                           threads_[index].is_done = true;
                                           return std::move(scheduler_);
                                         });
  }

  void Yield() { scheduler_ = std::move(scheduler_).resume(); }

  // Lets the thread run until it waits or ends.
  void Resume(Thread& thread) {
    position_.thread = thread.index;
    thread.fiber = std::move(thread.fiber).resume();
    if (!thread.is_done) return;
    bool is_copying = !thread.open_group.empty();
    for (const auto& group : thread.groups) is_copying |= !group.empty();
    if (is_copying) Die("a thread ended with asynchronous copies under way");
    --warps_[thread.index.x / kLanes].num_lanes;
  }

  // Runs the warp until all its lanes are done or at the barrier.
  void RunWarp(unsigned index) {
    const uint64_t kNever = ~uint64_t{0};
    uint64_t seen = kNever;
    while (true) {
      unsigned num_waiting = 0;
      for (unsigned i = 0; i < kLanes; ++i) {
        const unsigned lane = order_ == Order::kForward ? i : kLanes - 1 - i;
        Thread& thread = threads_[index * kLanes + lane];
        if (thread.is_done || thread.at_barrier) continue;
        Resume(thread);
        num_waiting += thread.in_collective && !thread.is_done && !thread.at_barrier;
      }
      if (num_waiting == 0 && AllRest(index)) return;
      if (num_waiting > 0 && warps_[index].generation == seen &&
          warps_[index].num_arrived == num_waiting)
        Die("some lanes of a warp wait for lanes that never come");
      seen = warps_[index].generation;
    }
  }

  bool AllRest(unsigned warp) const {
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const Thread& thread = threads_[warp * kLanes + lane];
      if (!thread.is_done && !thread.at_barrier) return false;
    }
    return true;
  }

  void RunBlock() {
    for (Warp& warp : warps_) {
      warp.num_lanes = kLanes;
      warp.num_arrived = 0;
      warp.generation = 0;
    }
    for (unsigned i = 0; i < threads_.size(); ++i) Start(i);
    bool is_alive = true;
    while (is_alive) {
      const auto num_warps = static_cast<unsigned>(warps_.size());
      for (unsigned i = 0; i < num_warps; ++i)
        RunWarp(order_ == Order::kForward ? i : num_warps - 1 - i);
      is_alive = false;
      for (Thread& thread : threads_) {
        is_alive |= !thread.is_done;
        thread.at_barrier = false;
      }
    }
  }

  const char* name_ = "";
  const std::function<void()>* body_ = nullptr;
  Order order_ = Order::kForward;
  Position position_;
  std::unique_ptr<unsigned char[]> shared_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  boost::context::fiber scheduler_;
  boost::context::pooled_fixedsize_stack stacks_{kStackBytes};
};

Machine& TheMachine() {
  thread_local Machine machine;
  return machine;
}

float E4m3(uint8_t code) {
  const float magnitude = (code & 0x7F) == 0x7F
                              ? NAN
                              : FloatFromBits(static_cast<uint32_t>(code & 0x7F) << 20) * 0x1p120f;
  return code & 0x80 ? -magnitude : magnitude;
}

// NaN as the instruction makes it.
uint16_t ToF16(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  constexpr uint32_t kNan = 0x7F800000u, kTooLarge = 0x477FF000u, kLeastNormal = 0x38800000u;
  uint32_t code;
  if (magnitude > kNan)
    return 0x7FFF;
  else if (magnitude >= kTooLarge)
    code = 0x7C00;
  else if (magnitude < kLeastNormal)
    code = BitsOf(FloatFromBits(magnitude) + 0.5f) - BitsOf(0.5f);
  else
    code = ((magnitude + 0xFFFu + (magnitude >> 13 & 1u)) >> 13) - (112u << 10);
  return static_cast<uint16_t>(code | sign);
}

float F16(const unsigned char* bytes) {
  uint16_t bits;
  memcpy(&bits, bytes, 2);
  const uint32_t magnitude = bits & 0x7FFFu;
  // The exponent's bias rises from 15 to 127.
  const float value = magnitude > 0x7C00u    ? NAN
                      : magnitude == 0x7C00u ? INFINITY
                                             : FloatFromBits(magnitude << 13) * 0x1p112f;
  return bits & 0x8000u ? -value : value;
}

float Bf16(const unsigned char* bytes) {
  uint16_t bits;
  memcpy(&bits, bytes, 2);
  return FloatFromBits(static_cast<uint32_t>(bits) << 16);
}

struct MmaInput {
  float d[4];
  uint32_t a[4];
  uint32_t b[2];
};
static_assert(sizeof(MmaInput) <= kMostBytes);

// d += a b of a warp, for fragments of 4-byte registers that hold kPerRegister numbers each: a is
// [16, 8 * kPerRegister], b [8 * kPerRegister, 8].
template <int kPerRegister, float (*kNumber)(const unsigned char*)>
void CombineMma(const unsigned char* inputs, unsigned char* outputs) {
  constexpr int kDepth = 8 * kPerRegister;
  float a[16][kDepth], b[kDepth][8], d[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    MmaInput input;
    memcpy(&input, inputs + lane * sizeof(input), sizeof(input));
    const int g = lane / 4, t = lane % 4;
    for (int r = 0; r < 4; ++r) {
      for (int i = 0; i < kPerRegister; ++i) {
        const auto* bytes =
            reinterpret_cast<const unsigned char*>(&input.a[r]) + i * 4 / kPerRegister;
        a[g + r % 2 * 8][kPerRegister * t + i + r / 2 * kDepth / 2] = kNumber(bytes);
      }
      d[g + r / 2 * 8][2 * t + r % 2] = input.d[r];
    }
    for (int r = 0; r < 2; ++r) {
      for (int i = 0; i < kPerRegister; ++i) {
        const auto* bytes =
            reinterpret_cast<const unsigned char*>(&input.b[r]) + i * 4 / kPerRegister;
        b[kPerRegister * t + i + r * kDepth / 2][g] = kNumber(bytes);
      }
    }
  }
  for (int m = 0; m < 16; ++m) {
    for (int k = 0; k < kDepth; ++k) {
      for (int n = 0; n < 8; ++n) d[m][n] += a[m][k] * b[k][n];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    float result[4];
    for (int r = 0; r < 4; ++r) result[r] = d[lane / 4 + r / 2 * 8][2 * (lane % 4) + r % 2];
    memcpy(outputs + lane * sizeof(result), result, sizeof(result));
  }
}

float E4m3Of(const unsigned char* byte) {
  return E4m3(*byte);
}

template <bool kTransposed>
void CombineLoadMatrix(const unsigned char* inputs, unsigned char* outputs) {
  const unsigned char* rows[32];
  memcpy(rows, inputs, sizeof(rows));
  for (int lane = 0; lane < 32; ++lane) {
    for (int m = 0; m < 4; ++m) {
      for (int i = 0; i < 2; ++i) {
        const int row = kTransposed ? 2 * (lane % 4) + i : lane / 4;
        const int col = kTransposed ? lane / 4 : 2 * (lane % 4) + i;
        memcpy(outputs + lane * 16 + m * 4 + i * 2, rows[m * 8 + row] + col * 2, 2);
      }
    }
  }
}

void Mma(const char* what, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
         Combine combine) {
  MmaInput input;
  memcpy(input.d, d, sizeof(d));
  memcpy(input.a, a, sizeof(a));
  memcpy(input.b, b, sizeof(b));
  WarpCollective(what, &input, sizeof(input), d, sizeof(d), combine);
}

}  // namespace

Position& Current() {
  return TheMachine().position();
}

void Enqueue(const StreamHandle& stream, const char* name, const Grid& grid,
             std::function<void()> thread_body) {
  auto& queue = *static_cast<EmulatedQueue*>(stream.native);
  if (const int fault = queue.TakeLaunchFault(); fault != 0) {
    if (stream.failure != nullptr && stream.failure->kernel == nullptr)
      *stream.failure = {name, fault};
    return;
  }
  queue.Enqueue(
      [name, grid, body = std::move(thread_body)] { TheMachine().Run(name, grid, body); });
}

void SetOrder(Order order) {
  TheMachine().set_order(order);
}

void BlockBarrier() {
  TheMachine().Barrier();
}

unsigned char* SharedMemory() {
  return TheMachine().SharedMemory();
}

void EndOfMisalignedVector() {
  TheMachine().Die("a vector is read or written at an address that is no multiple of its size");
}

void WarpCollective(const char* what, const void* input, int input_bytes, void* output,
                    int output_bytes, Combine combine) {
  TheMachine().Collective(what, input, input_bytes, output, output_bytes, combine);
}

void WarpGather(const void* input, int bytes, void* outputs) {
  TheMachine().Collective("shuffle", input, bytes, outputs, 0, nullptr);
}

void AsyncCopy16(void* shared, const void* global, bool is_valid) {
  if (reinterpret_cast<uintptr_t>(shared) % 16 != 0 ||
      (is_valid && reinterpret_cast<uintptr_t>(global) % 16 != 0)) {
    TheMachine().Die("an asynchronous copy is not aligned to 16 bytes");
  }
  TheMachine().Self().open_group.push_back({shared, global, is_valid});
}

void AsyncCommit() {
  Thread& thread = TheMachine().Self();
  thread.groups.push_back(std::move(thread.open_group));
  thread.open_group.clear();
}

void AsyncWaitGroups(int pending) {
  auto& groups = TheMachine().Self().groups;
  while (groups.size() > static_cast<size_t>(pending)) {
    for (const PendingCopy& copy : groups.front()) {
      if (copy.is_valid)
        memcpy(copy.shared, copy.global, 16);
      else
        memset(copy.shared, 0, 16);
    }
    groups.erase(groups.begin());
  }
}

void LoadMatrix4(uint32_t (&registers)[4], const void* shared_row) {
  if (reinterpret_cast<uintptr_t>(shared_row) % 16 != 0)
    TheMachine().Die("a matrix row is not aligned to 16 bytes");
  WarpCollective("LoadMatrix4", &shared_row, sizeof(shared_row), registers, sizeof(registers),
                 CombineLoadMatrix<false>);
}

void LoadMatrix4Transposed(uint32_t (&registers)[4], const void* shared_row) {
  if (reinterpret_cast<uintptr_t>(shared_row) % 16 != 0)
    TheMachine().Die("a matrix row is not aligned to 16 bytes");
  WarpCollective("LoadMatrix4Transposed", &shared_row, sizeof(shared_row), registers,
                 sizeof(registers), CombineLoadMatrix<true>);
}

void MmaBf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  Mma("MmaBf16", d, a, b, CombineMma<2, Bf16>);
}

void MmaF16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  Mma("MmaF16", d, a, b, CombineMma<2, F16>);
}

uint32_t PackF16(float low, float high) {
  return ToF16(low) | static_cast<uint32_t>(ToF16(high)) << 16;
}

void E4m3x4ToF16(uint32_t codes, uint32_t& low, uint32_t& high) {
  const auto number = [codes](int i) { return E4m3(static_cast<uint8_t>(codes >> 8 * i)); };
  low = PackF16(number(0), number(1));
  high = PackF16(number(2), number(3));
}

void E4m3x4ToBf16(uint32_t codes, uint32_t& low, uint32_t& high) {
  const auto number = [codes](int i) {
    return BitsOf(E4m3(static_cast<uint8_t>(codes >> 8 * i))) >> 16;
  };
  low = number(0) | number(1) << 16;
  high = number(2) | number(3) << 16;
}

void MmaE4m3(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  Mma("MmaE4m3", d, a, b, CombineMma<4, E4m3Of>);
}

}  // namespace sluice::emulator
