#include "kernels/cuda/emulator.h"

#include <utility>
#include <vector>

#include "device/emulated_queue.h"
#include "kernels/cuda/emulated_machine.h"
#include "kernels/cuda/emulated_races.h"

namespace sluice::emulator {
namespace {

// The emulator of a host thread, with its settings.
struct Emulator {
  Machine machine;
  int compute_capability = 90;
  std::function<void(const KernelLaunch&)> runner;
};

Emulator& Own() {
  thread_local Emulator emulator;
  return emulator;
}

Machine& TheMachine() {
  return Own().machine;
}

}  // namespace

Position& Current() {
  return TheMachine().position();
}

void Enqueue(const StreamHandle& stream, const KernelLaunch& launch,
             std::function<void()> thread_body) {
  auto& queue = *static_cast<EmulatedQueue*>(stream.native);
  if (const int fault = queue.TakeLaunchFault(); fault != 0) {
    if (stream.failure != nullptr) stream.failure->Record(launch.name, fault);
    return;
  }
  const auto* bytes = static_cast<const unsigned char*>(launch.args);
  queue.Enqueue([launch, args = std::vector<unsigned char>(bytes, bytes + launch.args_bytes),
                 body = std::move(thread_body)] {
    if (!Own().runner) return TheMachine().Run(launch.name, launch.grid, body);
    KernelLaunch own = launch;
    own.args = args.data();
    Own().runner(own);
  });
}

void SetOrder(Order order, uint64_t seed) {
  TheMachine().set_order(order, seed);
}

void WatchGlobal(void* memory, size_t bytes) {
  TheMachine().Watch(memory, bytes);
}

bool FindRaces(bool finds) {
  TheMachine().set_finds_races(finds && races::kCanFind);
  return races::kCanFind;
}

void LeaveOutBarrier(const char* kernel, int number) {
  TheMachine().LeaveOutBarrier(kernel, number);
}

bool HasLeftOutBarrier() {
  return TheMachine().has_left_out_barrier();
}

void SetComputeCapability(int capability) {
  Own().compute_capability = capability;
}

int ComputeCapability() {
  return Own().compute_capability;
}

void SetRunner(std::function<void(const KernelLaunch&)> runner) {
  Own().runner = std::move(runner);
}

void BlockBarrier() {
  TheMachine().BlockBarrier();
}

void WarpBarrier() {
  TheMachine().WarpBarrier();
}

void Fence() {
  TheMachine().Fence();
}

Atomic::Atomic(const void* address, size_t bytes) : address_(address), bytes_(bytes) {
  TheMachine().BeginAtomic(address_, bytes_);
}

Atomic::~Atomic() {
  TheMachine().EndAtomic(address_, bytes_);
}

void ReadPastCache(const void* address, size_t bytes) {
  TheMachine().ReadPastCache(address, bytes);
}

unsigned char* SharedMemory() {
  return TheMachine().SharedMemory();
}

void EndOfMisalignedVector() {
  TheMachine().Die("a vector is read or written at an address that is no multiple of its size");
}

void CheckMatrixRow(const void* shared_row) {
  if (reinterpret_cast<uintptr_t>(shared_row) % 16 != 0)
    TheMachine().Die("a matrix row is not aligned to 16 bytes");
  TheMachine().NoteRead(shared_row, 16);
}

void WarpCollective(const char* what, const void* input, int input_bytes, void* output,
                    int output_bytes, Combine combine) {
  TheMachine().Collective(what, input, input_bytes, output, output_bytes, combine);
}

void WarpGather(const void* input, int bytes, void* outputs) {
  TheMachine().Collective("shuffle", input, bytes, outputs, 0, nullptr);
}

void WaveCollective(const void* input, int input_bytes, void* output, int output_bytes,
                    Combine combine) {
  TheMachine().WaveCollective(input, input_bytes, output, output_bytes, combine);
}

void WaveGather(const void* input, int bytes, void* outputs) {
  TheMachine().WaveCollective(input, bytes, outputs, 0, nullptr);
}

uint32_t SharedAddress(const void* shared) {
  return TheMachine().SharedAddress(shared);
}

void InitMbarrier(uint32_t mbarrier, int count) {
  TheMachine().InitMbarrier(mbarrier, count);
}

void ArriveForBytes(uint32_t mbarrier, int bytes) {
  TheMachine().ArriveAtMbarrier(mbarrier, bytes);
}

void Arrive(uint32_t mbarrier) {
  TheMachine().ArriveAtMbarrier(mbarrier, 0);
}

void AwaitPhase(uint32_t mbarrier, int parity) {
  TheMachine().AwaitMbarrier(mbarrier, parity);
}

void CopyTile(uint32_t shared, const void* map, int column, int row, uint32_t mbarrier) {
  TheMachine().CopyTile(shared, map, column, row, mbarrier);
}

void CommitProducts() {
  TheMachine().CommitProducts();
}

void AwaitProductGroups(int pending) {
  TheMachine().AwaitProducts(pending);
}

void MultiplyGroup(float* d, int columns, uint64_t a, uint64_t b, bool accumulates) {
  TheMachine().MultiplyGroup(d, columns, a, b, accumulates);
}

void AsyncCopy16(void* shared, const void* global, bool is_valid) {
  TheMachine().AsyncCopy16(shared, global, is_valid);
}

void AsyncCommit() {
  TheMachine().AsyncCommit();
}

void AsyncWaitGroups(int pending) {
  TheMachine().AsyncWait(pending);
}

}  // namespace sluice::emulator
