#include "device/gpu_device.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "device/device_bytes.h"
#include "device/library_failure.h"

namespace sluice {
namespace {

// Returns `code` and clears the runtime's last error, so that no launcher reports it.
int Forget(const GpuRuntime& runtime, int code) {
  if (code != kGpuSuccess) runtime.take_last_error();
  return code;
}

// Remembers the first error after which the device is unusable. Thread safe.
class Health {
 public:
  explicit Health(const GpuRuntime& runtime) : runtime_(runtime) {}
  // Returns the error to report. Remembers it if it is fatal.
  Error Failure(const std::string& purpose, int code) {
    Error error = runtime_.failure(purpose, code);
    if (runtime_.is_fatal(code)) {
      const std::lock_guard lock(mutex_);
      if (!lost_) LOG_ERROR("device", "{}", error.message);
      if (!lost_) lost_ = error;
    }
    return error;
  }
  Status Check() const {
    const std::lock_guard lock(mutex_);
    if (lost_) return tl::unexpected<Error>(*lost_);
    return {};
  }

 private:
  const GpuRuntime& runtime_;
  mutable std::mutex mutex_;
  std::optional<Error> lost_;
};

// The device of a stream or an event.
struct Home {
  const GpuRuntime* runtime;
  int ordinal;
  Health* health;
  bool overlaps;  // StreamHandle::overlaps

  // Makes the device the calling thread's current one, then calls `call`. Returns the error of
  // either.
  template <typename Call>
  int Try(Call&& call) const {
    const int entered = Forget(*runtime, runtime->set_device(ordinal));
    return entered != kGpuSuccess ? entered : Forget(*runtime, call());
  }
  template <typename Call>
  Status Do(const char* purpose, Call&& call) const {
    RETURN_IF_ERROR(health->Check());
    return Report(purpose, Try(call));
  }
  Status Report(const char* purpose, int code) const {
    if (code != kGpuSuccess) return tl::unexpected<Error>(health->Failure(purpose, code));
    return {};
  }
};

class GpuEvent final : public DeviceEvent {
 public:
  GpuEvent(Home home, void* event) : home_(home), event_(event) {}
  ~GpuEvent() override {
    home_.Try([&] { return home_.runtime->destroy_event(event_); });
  }

  Status Synchronize() override {
    return home_.Do("waiting for an event", [&] { return home_.runtime->wait_for_event(event_); });
  }
  Result<double> SecondsSince(DeviceEvent& begin) override {
    float milliseconds = 0;
    RETURN_IF_ERROR(home_.Do("measuring the time between two events", [&] {
      return home_.runtime->milliseconds_between(&milliseconds,
                                                 static_cast<GpuEvent&>(begin).event_, event_);
    }));
    return milliseconds * 1e-3;
  }
  void* native() const { return event_; }

 private:
  Home home_;
  void* event_;
};

class GpuGraph final : public DeviceGraph {
 public:
  GpuGraph(Home home, void* graph, int64_t num_operations)
      : home_(home), graph_(graph), num_operations_(num_operations) {}
  ~GpuGraph() override {
    home_.Try([&] { return home_.runtime->destroy_graph(graph_); });
  }
  int64_t num_operations() const override { return num_operations_; }
  void* native() const { return graph_; }

 private:
  Home home_;
  void* graph_;
  int64_t num_operations_;
};

class GpuStream final : public DeviceStream {
 public:
  GpuStream(Home home, void* stream) : home_(home), stream_(stream) {}
  // Waits, since pending work may use memory that is freed next.
  ~GpuStream() override {
    home_.Try([&] { return home_.runtime->wait_for_stream(stream_); });
    home_.Try([&] { return home_.runtime->destroy_stream(stream_); });
  }

  void CopyToDevice(void* to, const void* host, int64_t bytes) override {
    Copy("to the device", to, host, bytes, home_.runtime->copy_to_device);
  }
  void CopyToHost(void* host, const void* from, int64_t bytes) override {
    Copy("to the host", host, from, bytes, home_.runtime->copy_to_host);
  }
  void CopyOnDevice(void* to, const void* from, int64_t bytes) override {
    Copy("on the device", to, from, bytes, home_.runtime->copy_on_device);
  }
  void Fill(void* to, uint8_t byte, int64_t bytes) override {
    CHECK_GE(bytes, 0);
    if (bytes == 0) return;
    const int code = home_.Try(
        [&] { return home_.runtime->fill(to, byte, static_cast<size_t>(bytes), stream_); });
    if (code != kGpuSuccess) Note(fmt::format("filling {} bytes of the device", bytes), code);
  }
  void Record(DeviceEvent& event) override {
    const int code = home_.Try([&] {
      return home_.runtime->record_event(static_cast<GpuEvent&>(event).native(), stream_);
    });
    if (code != kGpuSuccess) Note("recording an event", code);
  }
  void WaitFor(DeviceEvent& event) override {
    const int code = home_.Try([&] {
      return home_.runtime->have_stream_wait(stream_, static_cast<GpuEvent&>(event).native());
    });
    if (code != kGpuSuccess) Note("having a stream wait for an event", code);
  }

  Status Synchronize() override {
    return ReportAfter([&] { return home_.runtime->wait_for_stream(stream_); });
  }
  Status SynchronizeUntil(DeviceEvent& event) override {
    return ReportAfter(
        [&] { return home_.runtime->wait_for_event(static_cast<GpuEvent&>(event).native()); });
  }

  bool IsIdle() override {
    return home_.Try([&] { return home_.runtime->query_stream(stream_); }) != kGpuNotReady;
  }

  // While recording, other threads may allocate and copy.
  Status BeginCapture() override {
    RETURN_IF_ERROR(Synchronize());
    return home_.Do("beginning to record a graph",
                    [&] { return home_.runtime->begin_capture(stream_); });
  }
  Result<std::unique_ptr<DeviceGraph>> EndCapture() override {
    const std::optional<Error> noted = std::exchange(noted_, std::nullopt);
    const LaunchFailure failure = std::exchange(launch_failure_, {});
    void* recorded = nullptr;
    const int code = home_.Try([&] { return home_.runtime->end_capture(stream_, &recorded); });
    auto graph = Instantiate(noted, failure, code, recorded);
    if (recorded != nullptr) home_.Try([&] { return home_.runtime->destroy_recorded(recorded); });
    return graph;
  }
  void Replay(DeviceGraph& graph) override {
    const int code = home_.Try([&] {
      return home_.runtime->launch_graph(static_cast<GpuGraph&>(graph).native(), stream_);
    });
    if (code != kGpuSuccess) return Note("launching a graph", code);
    launch_failure_.Record("a graph", kGpuSuccess);
  }

  // Makes the device current, since launches go to the thread's current device.
  StreamHandle handle() override {
    const int code = home_.Try([] { return kGpuSuccess; });
    if (code != kGpuSuccess) Note("selecting the device", code);
    return {stream_, &launch_failure_, home_.overlaps};
  }

 private:
  // Makes a graph from the recorded work, unless something failed during recording.
  Result<std::unique_ptr<DeviceGraph>> Instantiate(const std::optional<Error>& noted,
                                                   const LaunchFailure& failure, int code,
                                                   void* recorded) {
    RETURN_IF_ERROR(home_.health->Check());
    if (failure.kernel != nullptr) RETURN_IF_ERROR(ReportLaunch(failure, code));
    if (noted) return tl::unexpected<Error>(*noted);
    RETURN_IF_ERROR(home_.Report("recording a graph", code));
    size_t num_operations = 0;
    RETURN_IF_ERROR(home_.Do("counting what a graph does", [&] {
      return home_.runtime->count_operations(recorded, &num_operations);
    }));
    void* native = nullptr;
    RETURN_IF_ERROR(home_.Do("making a graph of the captured launches",
                             [&] { return home_.runtime->instantiate(&native, recorded); }));
    auto graph = std::make_unique<GpuGraph>(home_, native, static_cast<int64_t>(num_operations));
    RETURN_IF_ERROR(home_.Do("bringing a graph to the device",
                             [&] { return home_.runtime->upload(native, stream_); }));
    RETURN_IF_ERROR(Synchronize());
    return graph;
  }
  // Reports failures so far, after `wait` has returned.
  template <typename Wait>
  Status ReportAfter(const Wait& wait) {
    const std::optional<Error> noted = std::exchange(noted_, std::nullopt);
    const LaunchFailure failure = std::exchange(launch_failure_, {});
    RETURN_IF_ERROR(home_.health->Check());
    const int code = home_.Try(wait);
    if (failure.kernel != nullptr) return ReportLaunch(failure, code);
    if (noted) return tl::unexpected<Error>(*noted);
    std::string purpose = "running a stream's kernels and copies";
    if (home_.runtime->is_fatal(code)) purpose += Suspects(failure);
    return home_.Report(purpose.c_str(), code);
  }
  // Returns whether every launch waits for its kernel. Otherwise a launch or a wait can report the
  // failure of an earlier kernel.
  bool LaunchesWait() const {
    const char* value = std::getenv(home_.runtime->blocking_variable);
    return value != nullptr && std::string_view(value) == home_.runtime->blocking_value;
  }
  std::string Suspects(const LaunchFailure& failure) const {
    std::string names;
    const unsigned count = std::min(failure.num_launched, LaunchFailure::kRemembered);
    for (unsigned i = failure.num_launched - count; i < failure.num_launched; ++i) {
      names += names.empty() ? "" : ", ";
      names += failure.launched[i % LaunchFailure::kRemembered];
    }
    if (names.empty()) return "";
    return fmt::format(
        " (the last launched kernels: {}; {}={} makes the error name the failing one)", names,
        home_.runtime->blocking_variable, home_.runtime->blocking_value);
  }

  // `code`: the error that the stream reported after the launch. A fatal one is reported instead of
  // the launch failure, because it is more specific.
  Status ReportLaunch(const LaunchFailure& failure, int code) const {
    std::string purpose = fmt::format("launching kernel {}", failure.kernel);
    const int launch_code = failure.code;
    if (failure.code != kFailedInLibrary && home_.runtime->is_fatal(launch_code)) {
      purpose = LaunchesWait()
                    ? fmt::format("running kernel {}", failure.kernel)
                    : fmt::format("a kernel before {} failed{}", failure.kernel, Suspects(failure));
      return home_.Report(purpose.c_str(), launch_code);
    }
    if (home_.runtime->is_fatal(code))
      return home_.Report((purpose + Suspects(failure)).c_str(), code);
    if (failure.code == kFailedInLibrary)
      return Fail(ErrorCode::kInternal,
                  fmt::format("{} failed; the log tells its library's reason", failure.kernel));
    return home_.Report(purpose.c_str(), failure.code);
  }
  void Note(const std::string& purpose, int code) {
    Error error = home_.health->Failure(purpose, code);
    if (!noted_) noted_ = std::move(error);
  }
  void Copy(const char* where, void* to, const void* from, int64_t bytes,
            int (*copy)(void*, const void*, size_t, void*)) {
    CHECK_GE(bytes, 0);
    if (bytes == 0) return;
    const int code = home_.Try([&] { return copy(to, from, static_cast<size_t>(bytes), stream_); });
    if (code != kGpuSuccess) Note(fmt::format("copying {} bytes {}", bytes, where), code);
  }

  Home home_;
  void* stream_;
  LaunchFailure launch_failure_;
  std::optional<Error> noted_;
};

class GpuDevice final : public Device {
 public:
  GpuDevice(const GpuRuntime& runtime, DeviceInfo info, bool overlaps)
      : info_(std::move(info)),
        health_(runtime),
        home_{&runtime, info_.ordinal, &health_, overlaps} {}

  const DeviceInfo& info() const override { return info_; }
  Status CheckAlive() const override { return health_.Check(); }

  // Creates the driver's context: the first call that can fail.
  Status Enter() {
    return home_.Do(
        fmt::format("selecting {} device {} ({})", home_.runtime->name, info_.ordinal, info_.name)
            .c_str(),
        [] { return kGpuSuccess; });
  }

  Result<int64_t> FreeBytes() override {
    size_t free = 0;
    size_t total = 0;
    RETURN_IF_ERROR(home_.Do("asking for free device memory",
                             [&] { return home_.runtime->memory_info(&free, &total); }));
    return static_cast<int64_t>(free);
  }

  Result<DeviceBuffer> Allocate(int64_t bytes, const char* what) override {
    CHECK_GE(bytes, 0);
    RETURN_IF_ERROR(health_.Check());
    if (bytes == 0) return DeviceBuffer();
    void* data = nullptr;
    const int code =
        home_.Try([&] { return home_.runtime->allocate(&data, static_cast<size_t>(bytes)); });
    if (code == kGpuOutOfMemory) {
      ASSIGN_OR_RETURN(const int64_t free, FreeBytes());
      return Fail(ErrorCode::kResourceExhausted,
                  OutOfDeviceMemoryText(what, info_.name, bytes, free, info_.total_bytes));
    }
    RETURN_IF_ERROR(home_.Report(what, code));
    return DeviceBuffer(this, data, bytes, /*is_host=*/false);
  }

  Result<DeviceBuffer> AllocatePinned(int64_t bytes, const char* what) override {
    CHECK_GE(bytes, 0);
    RETURN_IF_ERROR(health_.Check());
    if (bytes == 0) return DeviceBuffer();
    void* data = nullptr;
    const int code =
        home_.Try([&] { return home_.runtime->allocate_host(&data, static_cast<size_t>(bytes)); });
    if (code == kGpuOutOfMemory)
      return Fail(
          ErrorCode::kResourceExhausted,
          fmt::format("{}: the host could not give {} of page-locked memory; free memory of "
                      "the host, or raise the container's limits (memory, memlock)",
                      what, DeviceBytesText(bytes)));
    RETURN_IF_ERROR(home_.Report(what, code));
    return DeviceBuffer(this, data, bytes, /*is_host=*/true);
  }

  bool Pin(void* data, int64_t bytes) override {
    return health_.Check() && home_.Try([&] {
      return home_.runtime->lock_host(data, static_cast<size_t>(bytes));
    }) == kGpuSuccess;
  }
  void Unpin(void* data) override {
    home_.Try([&] { return home_.runtime->unlock_host(data); });
  }

  Result<std::unique_ptr<DeviceStream>> CreateStream() override {
    void* stream = nullptr;
    RETURN_IF_ERROR(
        home_.Do("creating a stream", [&] { return home_.runtime->create_stream(&stream); }));
    return std::make_unique<GpuStream>(home_, stream);
  }

  Result<std::unique_ptr<DeviceEvent>> CreateEvent() override {
    void* event = nullptr;
    RETURN_IF_ERROR(
        home_.Do("creating an event", [&] { return home_.runtime->create_event(&event); }));
    return std::make_unique<GpuEvent>(home_, event);
  }

  bool LetAddress(const Device& other) override {
    const DeviceInfo& peer = other.info();
    if (peer.kind != info_.kind) return false;
    if (peer.ordinal == info_.ordinal) return true;
    int can = 0;
    const int asked =
        home_.Try([&] { return home_.runtime->can_address(&can, info_.ordinal, peer.ordinal); });
    if (asked != kGpuSuccess || can == 0) return false;
    return home_.Try([&] { return home_.runtime->let_address(peer.ordinal); }) == kGpuSuccess;
  }

 protected:
  void Free(void* data, bool is_host) override {
    home_.Try([&] { return is_host ? home_.runtime->free_host(data) : home_.runtime->free(data); });
  }

 private:
  DeviceInfo info_;
  Health health_;
  Home home_;
};

}  // namespace

Result<std::unique_ptr<Device>> OpenGpuDevice(const GpuRuntime& runtime, const DeviceInfo& info,
                                              bool overlaps) {
  auto device = std::make_unique<GpuDevice>(runtime, info, overlaps);
  RETURN_IF_ERROR(device->Enter());
  return device;
}

}  // namespace sluice
