// Reads a recording from its folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "recording/events.h"
#include "recording/replay.h"

namespace sluice::recording {

// One run of a server. Ownership: owns the files' bytes; events are views into them. Moving a
// Recording keeps the views valid.
class Recording {
 public:
  // Reads the newest run in the folder, or the run whose name begins with `run`. `path` may also be
  // one of the run's files. kNotFound if there is no run; kInvalidData for damaged headers.
  static Result<Recording> Open(const std::filesystem::path& path, std::string_view run = "");

  const json::Value& header() const { return header_; }
  // Events of each stream, by number: stream 0 contains arrivals and facts, stream 1 + i the i-th
  // engine. A file that is missing or damaged in the middle of a stream is replaced by a kGap.
  const std::map<uint16_t, std::vector<RecordedEvent>>& streams() const { return streams_; }
  // Problems found in its files, one line each.
  const std::vector<std::string>& warnings() const { return warnings_; }
  // Whether the run's first file exists. Only then can steps be replayed.
  bool has_beginning() const { return has_beginning_; }
  bool is_of_hashes() const;
  // Returns the member of the header, or of facts added later; null if there is none.
  const json::Value* Fact(std::string_view name) const;

 private:
  Status Add(const std::filesystem::path& path, int64_t number);

  json::Value header_;
  json::Value facts_{json::Value::Object{}};
  std::map<uint16_t, std::vector<RecordedEvent>> streams_;
  std::vector<std::string> warnings_;
  bool has_beginning_ = false;
  std::vector<std::unique_ptr<const std::string>> files_;
};

// A request of an engine, with its outcome.
struct RecordedRequest {
  AddEvent add;
  int64_t unix_us = 0;  // wall-clock time of its arrival
  bool was_aborted = false;
  // Tokens of each sequence; zeros in a recording of hashes.
  std::vector<std::vector<int32_t>> outputs;
  int64_t num_output_tokens() const;
};

// Returns all requests of all engines, sorted by time of arrival.
std::vector<RecordedRequest> RequestsOf(const Recording& recording);

}  // namespace sluice::recording
