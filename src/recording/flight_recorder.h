// Records the events of a server's engines in a folder of bounded size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/journal.h"

namespace sluice::recording {

struct RecorderSettings {
  std::filesystem::path folder;  // created if it does not exist
  uint64_t max_bytes = 0;        // maximum bytes of all recordings in the folder together
  bool hashes_only = false;      // whether to omit token ids and bodies
  // Members of each file's header, such as version, options and model.
  json::Value facts{json::Value::Object{}};
};

// Totals since the start.
struct RecorderCounts {
  uint64_t events = 0;          // events passed to the recorder
  uint64_t dropped_events = 0;  // events that were not recorded
  uint64_t bytes = 0;           // bytes written
  bool has_failed = false;      // whether a write to the disk failed, which ends recording
};

// Events go into a bounded buffer for each stream, and a thread writes them to files. Callers never
// wait for the thread: events that do not fit into a buffer are dropped, which leaves a gap in the
// recording. A disk failure ends the recording, not the server. Thread safety: all methods may be
// called from any thread; a journal is used by one engine.
class FlightRecorder {
 public:
  // Creates the folder if needed, and deletes its oldest files while they exceed `max_bytes`.
  // Errors name the folder.
  static Result<std::unique_ptr<FlightRecorder>> Start(RecorderSettings settings);
  // Writes all buffered events.
  virtual ~FlightRecorder() = default;

  // Returns the journal of the i-th engine. The recorder owns it.
  virtual EngineJournal* journal(int engine) = 0;
  // Records that an HTTP request with a body has arrived, unless the body exceeds kMaxBodyBytes.
  virtual void OnArrival(std::string_view path, std::string_view body) = 0;
  // Adds facts that were not known at the start.
  virtual void AddFacts(const json::Value& facts) = 0;
  virtual RecorderCounts counts() const = 0;

  static constexpr size_t kMaxBodyBytes = size_t{4} << 20;
};

}  // namespace sluice::recording
