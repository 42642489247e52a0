#include "recording/recording.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "recording/segment.h"

namespace sluice::recording {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{4} << 30;

// Splits "RUN-NUMBER.flight" into the run and the number. Returns false for other names.
bool SplitName(const std::filesystem::path& path, std::string& run, int64_t& number) {
  constexpr size_t kDigits = 8;
  if (path.extension() != kExtension) return false;
  const std::string stem = path.stem().string();
  if (stem.size() < kDigits + 2 || stem[stem.size() - kDigits - 1] != '-') return false;
  number = 0;
  for (const char c : stem.substr(stem.size() - kDigits)) {
    if (c < '0' || c > '9') return false;
    number = 10 * number + (c - '0');
  }
  run = stem.substr(0, stem.size() - kDigits - 1);
  return true;
}

}  // namespace

Result<Recording> Recording::Open(const std::filesystem::path& path, std::string_view run) {
  std::error_code error;
  std::filesystem::path folder = path;
  std::string wanted(run);
  int64_t number = 0;
  if (std::filesystem::is_regular_file(path, error)) {
    if (!SplitName(path, wanted, number)) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: expected a folder of `sluice serve --record`, or a file of it",
                              path.string()));
    }
    folder = path.parent_path();
  }
  std::map<std::string, std::map<int64_t, std::filesystem::path>> runs;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator entry(folder, error); !error && entry != end;
       entry.increment(error)) {
    std::string name;
    if (SplitName(entry->path(), name, number) && name.starts_with(wanted))
      runs[name][number] = entry->path();
  }
  if (runs.empty()) {
    return Fail(
        ErrorCode::kNotFound,
        fmt::format("{}: expected files of `sluice serve --record`, found none", folder.string()));
  }
  const auto& files = runs.rbegin()->second;
  Recording recording;
  recording.has_beginning_ = files.begin()->first == 0;
  int64_t next = files.begin()->first;
  for (const auto& [place, file] : files) {
    if (place != next) {
      recording.warnings_.push_back(
          fmt::format("{}: the files before it are missing", file.string()));
      for (auto& [stream, events] : recording.streams_) events.push_back({EventKind::kGap, ""});
    }
    next = place + 1;
    RETURN_IF_ERROR(recording.Add(file, place));
  }
  return recording;
}

Status Recording::Add(const std::filesystem::path& path, int64_t number) {
  auto read = ReadFile(path, kMaxFileBytes);
  if (!read) return tl::unexpected(std::move(read).error());
  files_.push_back(std::make_unique<const std::string>(*std::move(read)));
  auto segment = ReadSegment(*files_.back());
  if (!segment) {
    // The last file of a server that is being stopped may have no header yet.
    if (number > 0) {
      warnings_.push_back(fmt::format("{}: {}", path.string(), segment.error().message));
      return {};
    }
    return tl::unexpected(std::move(segment).error().In(path.string()));
  }
  if (header_.is_null()) header_ = std::move(segment->header);
  for (const Chunk& chunk : segment->chunks) {
    std::vector<RecordedEvent>& events = streams_[chunk.stream];
    std::string_view rest = chunk.events;
    RecordedEvent event;
    while (TakeEvent(rest, event.kind, event.fields)) {
      events.push_back(event);
      if (event.kind != EventKind::kFacts) continue;
      const auto facts = ReadEvent<FactsEvent>(event.fields);
      const auto value = facts ? json::Parse(facts->facts, {.max_bytes = size_t{1} << 20})
                               : Result<json::Value>(json::Value());
      if (!value || !value->is_object()) continue;
      for (const auto& [name, member] : value->as_object()) facts_.Set(name, member);
    }
    if (!rest.empty()) {
      warnings_.push_back(fmt::format("{}: a chunk ends within an event", path.string()));
      events.push_back({EventKind::kGap, ""});
    }
  }
  if (segment->damage.empty()) return {};
  warnings_.push_back(fmt::format("{}: {}; the rest is not read", path.string(), segment->damage));
  for (auto& [stream, events] : streams_) events.push_back({EventKind::kGap, ""});
  return {};
}

bool Recording::is_of_hashes() const {
  const json::Value* privacy = Fact("privacy");
  return privacy != nullptr && privacy->is_string() && privacy->as_string() == "hashes";
}

const json::Value* Recording::Fact(std::string_view name) const {
  const json::Value* later = facts_.Find(name);
  return later != nullptr ? later : header_.Find(name);
}

int64_t RecordedRequest::num_output_tokens() const {
  int64_t count = 0;
  for (const auto& output : outputs) count += std::ssize(output);
  return count;
}

std::vector<RecordedRequest> RequestsOf(const Recording& recording) {
  std::vector<RecordedRequest> requests;
  for (const auto& [stream, events] : recording.streams()) {
    if (stream == 0) continue;
    std::map<uint64_t, size_t> places;  // index in `requests`, by handle
    int64_t start_us = 0;
    const auto find = [&](uint64_t handle) -> RecordedRequest* {
      const auto found = places.find(handle);
      return found == places.end() ? nullptr : &requests[found->second];
    };
    for (const RecordedEvent& event : events) {
      if (event.kind == EventKind::kStart) {
        if (const auto start = ReadEvent<StartEvent>(event.fields)) start_us = start->unix_us;
      } else if (event.kind == EventKind::kAdd) {
        auto add = ReadEvent<AddEvent>(event.fields);
        if (!add) continue;
        places[add->handle] = requests.size();
        const int64_t unix_us = start_us + add->arrival_us;
        // The event is untrusted, so memory for outputs is allocated only for sampled tokens.
        requests.push_back({.add = *std::move(add), .unix_us = unix_us, .outputs = {}});
      } else if (event.kind == EventKind::kAbort) {
        const auto abort = ReadEvent<AbortEvent>(event.fields);
        if (RecordedRequest* request = abort ? find(abort->handle) : nullptr)
          request->was_aborted = true;
      } else if (event.kind == EventKind::kSampled) {
        const auto sampled = ReadEvent<SampledEvent>(event.fields);
        if (!sampled) continue;
        for (const RowRecord& row : sampled->rows) {
          RecordedRequest* const request = find(row.sequence.handle);
          if (request == nullptr || !row.has_token() || row.sequence.index < 0 ||
              row.sequence.index >= std::min(request->add.num_sequences, kMaxSequences))
            continue;
          const auto index = static_cast<size_t>(row.sequence.index);
          if (request->outputs.size() <= index) request->outputs.resize(index + 1);
          request->outputs[index].push_back(row.token);
        }
      }
    }
  }
  std::ranges::stable_sort(requests, {}, &RecordedRequest::unix_us);
  return requests;
}

}  // namespace sluice::recording
