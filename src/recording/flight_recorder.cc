#include "recording/flight_recorder.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/firewall.h"
#include "base/list_folder.h"
#include "base/log.h"
#include "base/mutex.h"
#include "recording/event_journal.h"
#include "recording/redact.h"
#include "recording/segment.h"

namespace sluice::recording {
namespace {

// Maximum bytes of a stream that wait for the writer thread.
constexpr size_t kMostWaiting = size_t{32} << 20;
// The writer thread takes the events from the buffers at this interval.
constexpr std::chrono::milliseconds kInterval(50);
// Number of files in a recording of max_bytes. The oldest file is deleted as a whole.
constexpr uint64_t kNumSegments = 8;
constexpr uint64_t kLeastSegment = uint64_t{64} << 10;

int64_t UnixMicroseconds() {
  using std::chrono::duration_cast, std::chrono::microseconds, std::chrono::system_clock;
  return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

// The events of a stream that the writer thread has not taken yet.
class StreamBuffer final : public EventSink {
 public:
  void Append(std::string_view bytes) override {
    const MutexLock lock(mutex_);
    ++num_events_;
    if (bytes.size() > kMaxEventBytes || waiting_.size() + bytes.size() > kMostWaiting) {
      ++num_dropped_;
      ++gap_;
      return;
    }
    if (gap_ > 0) AppendEvent(waiting_, GapEvent{std::exchange(gap_, 0)});
    waiting_ += bytes;
  }

  // Swaps the waiting events with `taken`, whose memory is used again.
  void Take(std::string& taken) {
    taken.clear();
    const MutexLock lock(mutex_);
    if (gap_ > 0) AppendEvent(waiting_, GapEvent{std::exchange(gap_, 0)});
    taken.swap(waiting_);
  }

  void Count(RecorderCounts& counts) const {
    const MutexLock lock(mutex_);
    counts.events += num_events_;
    counts.dropped_events += num_dropped_;
  }

 private:
  mutable Mutex mutex_;
  std::string waiting_ GUARDED_BY(mutex_);
  uint64_t num_events_ GUARDED_BY(mutex_) = 0;
  uint64_t num_dropped_ GUARDED_BY(mutex_) = 0;
  // Number of events dropped since the last event that was kept.
  uint64_t gap_ GUARDED_BY(mutex_) = 0;
};

// Deletes the oldest recorded files until all files in the folder take at most `max_bytes`. Never
// deletes `kept`. Sorting by name sorts by age.
void Trim(const std::filesystem::path& folder, uint64_t max_bytes,
          const std::filesystem::path& kept) {
  std::error_code error;
  std::vector<std::pair<std::filesystem::path, uint64_t>> files;
  uint64_t total = 0;
  for (const std::filesystem::path& path : ListFolder(folder, error)) {
    if (path.extension() != kExtension) continue;
    const uint64_t size = std::filesystem::file_size(path, error);
    if (error) continue;
    files.emplace_back(path, size);
    total += size;
  }
  std::ranges::sort(files);
  for (const auto& [path, size] : files) {
    if (total <= max_bytes || path == kept) return;
    std::filesystem::remove(path, error);
    total -= size;
  }
}

class FlightRecorderImpl final : public FlightRecorder {
 public:
  explicit FlightRecorderImpl(RecorderSettings settings)
      : settings_(std::move(settings)),
        run_(fmt::format("{:016}-{:07}", UnixMicroseconds(), getpid())) {}

  ~FlightRecorderImpl() override {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    wake_.NotifyOne();
    if (thread_.joinable()) thread_.join();
  }

  Status Begin() {
    std::error_code error;
    std::filesystem::create_directories(settings_.folder, error);
    if (error) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("{}: cannot be created: {}", settings_.folder.string(), error.message()),
          "record");
    }
    settings_.facts.Set("run", run_);
    settings_.facts.Set("privacy", settings_.hashes_only ? "hashes" : "none");
    auto opened = OpenSegment();
    if (!opened) {
      Error wrong = std::move(opened).error();
      wrong.param = "record";
      return tl::unexpected(std::move(wrong));
    }
    thread_ = StartThread("recorder", [this] { Work(); });
    return {};
  }

  EngineJournal* journal(int engine) override {
    const MutexLock lock(mutex_);
    while (std::ssize(engines_) <= engine) engines_.emplace_back();
    return &engines_[static_cast<size_t>(engine)].journal;
  }

  void OnArrival(std::string_view path, std::string_view body) override {
    ArrivalEvent event{.unix_us = UnixMicroseconds(),
                       .path = std::string(path),
                       .body_bytes = body.size(),
                       .body = ""};
    if (!settings_.hashes_only && body.size() <= kMaxBodyBytes) event.body = body;
    std::string bytes;
    AppendEvent(bytes, event);
    server_.Append(bytes);
  }

  void AddFacts(const json::Value& facts) override {
    std::string bytes;
    AppendEvent(bytes, FactsEvent{json::Write(facts)});
    server_.Append(bytes);
  }

  RecorderCounts counts() const override {
    RecorderCounts counts{.bytes = bytes_.load(), .has_failed = has_failed_.load()};
    server_.Count(counts);
    const MutexLock lock(mutex_);
    for (const RecordedEngine& engine : engines_) engine.buffer.Count(counts);
    return counts;
  }

 private:
  struct RecordedEngine {
    StreamBuffer buffer;
    RecordingJournal journal{&buffer};
  };

  Status OpenSegment() {
    json::Value header = settings_.facts;
    header.Set("segment", num_segments_);
    header.Set("unix_us", UnixMicroseconds());
    const auto path = settings_.folder / fmt::format("{}-{:08}{}", run_, num_segments_, kExtension);
    ++num_segments_;
    ASSIGN_OR_RETURN(segment_, SegmentWriter::Create(path, header));
    return {};
  }

  void Work() {
    bool running = true;
    while (running) {
      {
        MutexLock lock(mutex_);
        if (!stopping_) wake_.WaitUntil(lock, std::chrono::steady_clock::now() + kInterval);
        running = !stopping_;
      }
      RunGuarded("recorder", "to report a failure", [this] {
        Try(CatchToResult([this]() -> Status {
          WriteOut();
          return {};
        }));
      });
    }
  }

  void WriteOut() {
    WriteStream(0, server_);
    size_t num_engines = 0;
    {
      const MutexLock lock(mutex_);
      num_engines = engines_.size();
    }
    for (size_t i = 0; i < num_engines; ++i) {
      StreamBuffer* buffer = nullptr;
      {
        const MutexLock lock(mutex_);
        buffer = &engines_[i].buffer;
      }
      WriteStream(static_cast<uint16_t>(1 + i), *buffer);
    }
    if (!has_failed_) Try(segment_->Flush());
  }

  void WriteStream(uint16_t stream, StreamBuffer& buffer) {
    buffer.Take(taken_);
    if (taken_.empty() || has_failed_) return;
    std::string_view rest = taken_;
    if (settings_.hashes_only) {
      redacted_.clear();
      AppendRedacted(key_, taken_, redacted_);
      rest = redacted_;
    }
    while (!rest.empty() && !has_failed_) {
      const std::string_view chunk = TakeChunk(rest);
      const uint64_t before = segment_->bytes();
      Try(segment_->Append(stream, chunk));
      bytes_ += segment_->bytes() - before;
      if (segment_->bytes() >= std::max(kLeastSegment, settings_.max_bytes / kNumSegments))
        Rotate();
    }
  }

  // Removes whole events of about kChunkBytes from the front of `rest` and returns them.
  static std::string_view TakeChunk(std::string_view& rest) {
    std::string_view after = rest, fields;
    EventKind kind{};
    while (rest.size() - after.size() < kChunkBytes && TakeEvent(after, kind, fields)) {
    }
    const std::string_view chunk = rest.substr(0, rest.size() - after.size());
    rest = after;
    return chunk;
  }

  void Rotate() {
    Try(segment_->Flush());
    if (has_failed_) return;
    Try(OpenSegment());
    // Leaves room for the file that was just begun.
    const uint64_t next = std::max(kLeastSegment, settings_.max_bytes / kNumSegments);
    Trim(settings_.folder, settings_.max_bytes > next ? settings_.max_bytes - next : 0,
         segment_->path());
  }

  void Try(const Status& status) {
    if (status || has_failed_.exchange(true)) return;
    LOG_ERROR("recorder", "the recording ends, the server continues: {}", status.error().message);
  }

  RecorderSettings settings_;
  const std::string run_;
  const HashKey key_ = RandomHashKey();
  StreamBuffer server_;
  mutable Mutex mutex_;
  CondVar wake_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  // A deque, because its elements stay in place.
  std::deque<RecordedEngine> engines_ GUARDED_BY(mutex_);
  std::atomic<uint64_t> bytes_{0};
  std::atomic<bool> has_failed_{false};
  // Used only by the writer thread.
  std::unique_ptr<SegmentWriter> segment_;
  int64_t num_segments_ = 0;
  std::string taken_, redacted_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<FlightRecorder>> FlightRecorder::Start(RecorderSettings settings) {
  auto recorder = std::make_unique<FlightRecorderImpl>(std::move(settings));
  RETURN_IF_ERROR(recorder->Begin());
  return std::unique_ptr<FlightRecorder>(std::move(recorder));
}

}  // namespace sluice::recording
