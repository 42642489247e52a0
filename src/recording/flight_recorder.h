// Records what a server's engines do into a folder of bounded size.
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
  uint64_t max_bytes = 0;        // of all recordings in the folder together
  bool hashes_only = false;      // no token ids and no bodies
  // Members of each file's header: version, options, model.
  json::Value facts{json::Value::Object{}};
};

// What was recorded so far.
struct RecorderCounts {
  uint64_t events = 0;          // given to the recorder
  uint64_t dropped_events = 0;  // of these, not recorded
  uint64_t bytes = 0;           // written
  bool has_failed = false;      // the disk refused; nothing is recorded any more
};

// Events go into a bounded buffer for each stream, and a thread writes them to files. Nothing waits
// for the thread: what does not fit into a buffer is dropped, and the recording has a gap there. A
// disk that fails ends the recording, not the server.
// Thread safety: all methods may be called from any thread; a journal is used by one engine.
class FlightRecorder {
 public:
  // Errors name the folder. Deletes the oldest files if the folder holds more than `max_bytes`.
  static Result<std::unique_ptr<FlightRecorder>> Start(RecorderSettings settings);
  // Writes everything out.
  virtual ~FlightRecorder() = default;

  // The journal of the i-th engine. Owned by the recorder.
  virtual EngineJournal* journal(int engine) = 0;
  // An HTTP request with a body has arrived. A body of more than kMaxBodyBytes is not recorded.
  virtual void OnArrival(std::string_view path, std::string_view body) = 0;
  // Adds facts that were not known at the start.
  virtual void AddFacts(const json::Value& facts) = 0;
  virtual RecorderCounts counts() const = 0;

  static constexpr size_t kMaxBodyBytes = size_t{4} << 20;
};

}  // namespace sluice::recording
