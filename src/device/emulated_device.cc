#include "device/emulated_device.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "device/device_bytes.h"
#include "device/emulated_queue.h"
#include "device/unwritten_memory.h"

namespace sluice {
namespace {

constexpr int kInjectedCode = 719;  // cudaErrorLaunchFailure

tl::unexpected<Error> Lost() {
  return Fail(ErrorCode::kInternal, "the emulated device was lost; restart the program");
}

// Returns whether a single allocation contains all these bytes.
bool Covers(const std::map<uintptr_t, int64_t>& memory, const void* data, int64_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const auto after = memory.upper_bound(address);
  if (after == memory.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return address + static_cast<uintptr_t>(bytes) <= begin + static_cast<uintptr_t>(size);
}

class EmulatedEvent final : public DeviceEvent {
 public:
  explicit EmulatedEvent(EmulatedDevice* device) : device_(device) {}

  void Record(std::shared_ptr<EmulatedQueue> queue) {
    queue_ = std::move(queue);
    count_ = queue_->num_enqueued();
  }
  // Returns the queue and the work count of the last Record, by value, because the event may be
  // recorded again while a caller waits for the queue.
  std::pair<std::shared_ptr<EmulatedQueue>, int64_t> place() const { return {queue_, count_}; }

  Status Synchronize() override {
    if (device_->is_lost()) return Lost();
    if (queue_ != nullptr) queue_->RunUntil(count_);
    return {};
  }
  Result<double> SecondsSince(DeviceEvent& /*begin*/) override {
    if (device_->is_lost()) return Lost();
    return 0.0;
  }

 private:
  EmulatedDevice* device_;
  std::shared_ptr<EmulatedQueue> queue_;
  int64_t count_ = 0;
};

class EmulatedGraph final : public DeviceGraph {
 public:
  explicit EmulatedGraph(EmulatedQueue::Recorded work) : work_(std::move(work)) {}
  int64_t num_operations() const override { return std::ssize(work_); }
  const EmulatedQueue::Recorded& work() const { return work_; }

 private:
  EmulatedQueue::Recorded work_;
};

// Which addresses of a copy are device addresses.
enum class CopyKind { kToDevice, kToHost, kOnDevice };

class EmulatedStream final : public DeviceStream {
 public:
  EmulatedStream(EmulatedDevice* device, std::atomic<int>* launch_fault, bool runs_at_once)
      : device_(device), queue_(std::make_shared<EmulatedQueue>(launch_fault, runs_at_once)) {}
  // Drops work that no caller waited for, because its memory may have been freed.
  ~EmulatedStream() override { queue_->Drop(); }

  void CopyToDevice(void* to, const void* host, int64_t bytes) override {
    Copy("a copy to the device", CopyKind::kToDevice, to, host, bytes);
  }
  void CopyToHost(void* host, const void* from, int64_t bytes) override {
    Copy("a copy to the host", CopyKind::kToHost, host, from, bytes);
  }
  void CopyOnDevice(void* to, const void* from, int64_t bytes) override {
    Copy("a copy on the device", CopyKind::kOnDevice, to, from, bytes);
  }
  void Fill(void* to, uint8_t byte, int64_t bytes) override {
    if (bytes == 0) return;
    if (device_->TakeCopyFault()) return Note("a fill failed: an injected fault");
    queue_->Enqueue([this, to, byte, bytes] {
      if (!device_->Holds(to, bytes))
        return Note(fmt::format("a fill of {} bytes: {} is not the device's memory", bytes, to));
      memset(to, byte, static_cast<size_t>(bytes));
    });
  }
  void Record(DeviceEvent& event) override {
    if (queue_->is_recording()) return Note("an event was recorded inside a graph");
    static_cast<EmulatedEvent&>(event).Record(queue_);
  }
  void WaitFor(DeviceEvent& event) override {
    if (queue_->is_recording()) return Note("an event was waited for inside a graph");
    const auto place = static_cast<EmulatedEvent&>(event).place();
    if (place.first == nullptr || place.first == queue_) return;
    queue_->Enqueue([place] { place.first->RunUntil(place.second); });
  }
  Status Synchronize() override { return SynchronizeUntil(queue_->num_enqueued()); }
  Status SynchronizeUntil(DeviceEvent& event) override {
    return SynchronizeUntil(static_cast<EmulatedEvent&>(event).place().second);
  }
  bool IsIdle() override {
    if (device_->is_lost()) queue_->Drop();
    if (device_->hangs()) return false;
    return queue_->TryRunAll();
  }
  StreamHandle handle() override { return {queue_.get(), &failure_}; }

  Status BeginCapture() override {
    CHECK(!queue_->is_recording());
    RETURN_IF_ERROR(Synchronize());
    queue_->BeginRecording();
    return {};
  }
  Result<std::unique_ptr<DeviceGraph>> EndCapture() override {
    CHECK(queue_->is_recording());
    auto graph = std::make_unique<EmulatedGraph>(queue_->EndRecording());
    RETURN_IF_ERROR(Synchronize());
    return graph;
  }
  void Replay(DeviceGraph& graph) override {
    for (const std::function<bool()>& work : static_cast<EmulatedGraph&>(graph).work())
      queue_->EnqueueWaiting(work);
  }

 private:
  // Waits for the first `count` work items of the queue.
  Status SynchronizeUntil(int64_t count) {
    if (device_->is_lost()) {
      queue_->Drop();
      return Lost();
    }
    if (queue_->is_recording()) {
      Note("a stream was waited for inside a graph");
      return Fail(ErrorCode::kInternal, copy_failure_);
    }
    queue_->RunUntil(count);
    const LaunchFailure failure = std::exchange(failure_, {});
    const std::string copy_failure = std::exchange(copy_failure_, {});
    if (failure.kernel != nullptr)
      return Fail(ErrorCode::kInternal, fmt::format("kernel {} could not be launched: error {}",
                                                    failure.kernel, failure.code));
    if (!copy_failure.empty()) return Fail(ErrorCode::kInternal, copy_failure);
    return {};
  }
  void Note(std::string message) {
    if (copy_failure_.empty()) copy_failure_ = std::move(message);
  }
  void Copy(const char* what, CopyKind kind, void* to, const void* from, int64_t bytes) {
    CHECK_GE(bytes, 0);
    if (bytes == 0) return;
    if (device_->TakeCopyFault()) return Note(fmt::format("{} failed: an injected fault", what));
    if (queue_->is_recording() && kind != CopyKind::kOnDevice)
      return Note(fmt::format("{} was put into a graph", what));
    const void* const host = kind == CopyKind::kToDevice ? from : to;
    const bool was_locked = device_->IsLocked(host, bytes);
    queue_->Enqueue([=, this] {
      if (was_locked && !device_->IsLocked(host, bytes))
        return Note(fmt::format("{} of {} bytes: the page-locked memory went before", what, bytes));
      const bool to_fits =
          kind == CopyKind::kToHost ? !device_->Touches(to, bytes) : device_->Holds(to, bytes);
      const bool from_fits = kind == CopyKind::kToDevice ? !device_->Touches(from, bytes)
                                                         : device_->Holds(from, bytes);
      if (!to_fits || !from_fits)
        return Note(fmt::format("{} of {} bytes: {} {} is not the memory it should be", what, bytes,
                                to_fits ? "its source" : "its target", to_fits ? from : to));
      memmove(to, from, static_cast<size_t>(bytes));
    });
  }

  EmulatedDevice* device_;
  std::shared_ptr<EmulatedQueue> queue_;  // shared with the events that it recorded
  LaunchFailure failure_;
  std::string copy_failure_;
};

}  // namespace

EmulatedDevice::EmulatedDevice(const EmulatedDeviceOptions& options)
    : runs_at_once_(options.runs_at_once),
      keeps_arrays_apart_(options.keeps_arrays_apart),
      addresses_others_(options.addresses_others) {
  info_.kind = DeviceKind::kEmulated;
  info_.ordinal = options.ordinal;
  info_.name = "emulated";
  info_.uuid = fmt::format("emulated-{}", options.ordinal);
  info_.compute_major = options.compute_major;
  info_.compute_minor = options.compute_minor;
  info_.num_multiprocessors = 4;
  info_.total_bytes = options.total_bytes;
  info_.l2_bytes = int64_t{1} << 20;
  info_.max_shared_bytes = 227 * 1024;
}

EmulatedDevice::~EmulatedDevice() {
  CHECK(allocated_.empty() && pinned_.empty() && locked_.empty(), "memory outlives its device");
}

Status EmulatedDevice::CheckAlive() const {
  if (is_lost_) return Lost();
  return {};
}

Result<int64_t> EmulatedDevice::FreeBytes() {
  if (is_lost_) return Lost();
  const std::lock_guard lock(mutex_);
  return info_.total_bytes - allocated_bytes_;
}

Result<DeviceBuffer> EmulatedDevice::Allocate(int64_t bytes, const char* what) {
  return AllocateSpaced(bytes, bytes, what);
}

Result<DeviceBuffer> EmulatedDevice::AllocateSpaced(int64_t bytes, int64_t reserved,
                                                    const char* what) {
  CHECK_GE(bytes, 0);
  CHECK_GE(reserved, bytes);
  if (is_lost_) return Lost();
  if (reserved == 0) return DeviceBuffer();
  const std::lock_guard lock(mutex_);
  const int64_t free = info_.total_bytes - allocated_bytes_;
  if (bytes > free)
    return Fail(ErrorCode::kResourceExhausted,
                OutOfDeviceMemoryText(what, info_.name, bytes, free, info_.total_bytes));
  ASSIGN_OR_RETURN(void* data, AllocateUnwritten(reserved, what));
  allocated_.emplace(reinterpret_cast<uintptr_t>(data), reserved);
  if (reserved > bytes) spaced_.emplace(reinterpret_cast<uintptr_t>(data), reserved - bytes);
  allocated_bytes_ += bytes;
  return DeviceBuffer(this, data, reserved, /*is_host=*/false);
}

Result<DeviceBuffer> EmulatedDevice::AllocatePinned(int64_t bytes, const char* what) {
  CHECK_GE(bytes, 0);
  if (is_lost_) return Lost();
  if (bytes == 0) return DeviceBuffer();
  ASSIGN_OR_RETURN(void* data, AllocateUnwritten(bytes, what));
  const std::lock_guard lock(mutex_);
  pinned_.emplace(reinterpret_cast<uintptr_t>(data), bytes);
  return DeviceBuffer(this, data, bytes, /*is_host=*/true);
}

bool EmulatedDevice::Pin(void* data, int64_t bytes) {
  if (is_lost_) return false;
  const std::lock_guard lock(mutex_);
  return locked_.emplace(reinterpret_cast<uintptr_t>(data), bytes).second;
}

void EmulatedDevice::Unpin(void* data) {
  const std::lock_guard lock(mutex_);
  CHECK(locked_.erase(reinterpret_cast<uintptr_t>(data)) == 1, "memory that is not page-locked");
}

Result<std::unique_ptr<DeviceStream>> EmulatedDevice::CreateStream() {
  if (is_lost_) return Lost();
  return std::make_unique<EmulatedStream>(this, &launch_fault_, runs_at_once_);
}

Result<std::unique_ptr<DeviceEvent>> EmulatedDevice::CreateEvent() {
  if (is_lost_) return Lost();
  return std::make_unique<EmulatedEvent>(this);
}

bool EmulatedDevice::LetAddress(const Device& other) {
  return addresses_others_ && other.info().kind == DeviceKind::kEmulated;
}

void EmulatedDevice::FailNextLaunch() {
  launch_fault_ = kInjectedCode;
}

bool EmulatedDevice::Holds(const void* data, int64_t bytes) const {
  const std::lock_guard lock(mutex_);
  return Covers(allocated_, data, bytes);
}

bool EmulatedDevice::IsLocked(const void* data, int64_t bytes) const {
  const std::lock_guard lock(mutex_);
  return Covers(pinned_, data, bytes) || Covers(locked_, data, bytes);
}

bool EmulatedDevice::Touches(const void* data, int64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(data);
  const auto after = allocated_.lower_bound(address + static_cast<uintptr_t>(bytes));
  if (after == allocated_.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return address < begin + static_cast<uintptr_t>(size);
}

void EmulatedDevice::Free(void* data, bool is_host) {
  const std::lock_guard lock(mutex_);
  auto& memory = is_host ? pinned_ : allocated_;
  const auto found = memory.find(reinterpret_cast<uintptr_t>(data));
  CHECK(found != memory.end(), "memory that is not the device's");
  FreeUnwritten(data, found->second);
  if (!is_host) {
    allocated_bytes_ -= found->second;
    if (const auto spaced = spaced_.find(found->first); spaced != spaced_.end()) {
      allocated_bytes_ += spaced->second;
      spaced_.erase(spaced);
    }
  }
  memory.erase(found);
}

}  // namespace sluice
