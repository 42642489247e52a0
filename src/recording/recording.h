// A recording that is read from its folder.
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

// One run of a server. Ownership: events are views into the files' bytes, which it owns; moving it
// keeps them valid.
class Recording {
 public:
  // Reads the newest run in the folder, or the run whose name begins with `run`. `path` may also be
  // one of its files. kNotFound if there is none; kInvalidData for damaged headers.
  static Result<Recording> Open(const std::filesystem::path& path, std::string_view run = "");

  const json::Value& header() const { return header_; }
  // Streams by number: 0 has arrivals and facts, 1 + i the i-th engine. Where a file is missing or
  // damaged in the middle of a stream, there is a kGap.
  const std::map<uint16_t, std::vector<RecordedEvent>>& streams() const { return streams_; }
  // What is wrong with its files, one line each.
  const std::vector<std::string>& warnings() const { return warnings_; }
  // Whether the first file is there, so that steps can be replayed.
  bool has_beginning() const { return has_beginning_; }
  bool is_of_hashes() const;
  // The member of the header, or of later facts; null if there is none.
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

// A request of an engine, with what came of it.
struct RecordedRequest {
  AddEvent add;
  int64_t unix_us = 0;  // of its arrival
  bool was_aborted = false;
  std::vector<std::vector<int32_t>> outputs;  // by sequence; zeros in a recording of hashes
  int64_t num_output_tokens() const;
};

// All requests of all engines, by time of arrival.
std::vector<RecordedRequest> RequestsOf(const Recording& recording);

}  // namespace sluice::recording
