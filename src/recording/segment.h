// Reads and writes the files of a recording (docs/recording.md).
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace sluice::recording {

// Version of the format. Readers refuse others.
inline constexpr int64_t kFormatVersion = 1;
inline constexpr std::string_view kExtension = ".flight";
// A chunk ends after the event with which it reaches this size.
inline constexpr size_t kChunkBytes = size_t{1} << 20;

// Returns the CRC-32C (Castagnoli) of `bytes`, continued from `crc`.
uint32_t Crc32c(std::string_view bytes, uint32_t crc = 0);

// Writes one file. Thread safety: none.
class SegmentWriter {
 public:
  // Creates the file, readable only by its owner, and writes its header. Errors name the file.
  static Result<std::unique_ptr<SegmentWriter>> Create(const std::filesystem::path& path,
                                                       const json::Value& header);
  // Appends whole events of a stream.
  Status Append(uint16_t stream, std::string_view events);
  // Passes the appended events to the operating system.
  Status Flush();

  uint64_t bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  SegmentWriter(std::filesystem::path path, std::FILE* file)
      : path_(std::move(path)), file_(file) {}
  Status Write(std::string_view bytes);

  const std::filesystem::path path_;
  const std::unique_ptr<std::FILE, Closer> file_;
  uint64_t bytes_ = 0;
  uint64_t num_chunks_ = 0;
};

struct Chunk {
  uint16_t stream = 0;
  std::string_view events;
};

// The parsed file. Views into the file's bytes.
struct Segment {
  json::Value header;
  std::vector<Chunk> chunks;
  // Why the rest of the file is missing: it is truncated, as after a crash, or damaged. "" if the
  // file is complete.
  std::string damage;
};

// Parses untrusted bytes, in time and memory proportional to their number. kInvalidData, with what
// was expected and found, if there is no header of a known version.
Result<Segment> ReadSegment(std::string_view bytes);

}  // namespace sluice::recording
