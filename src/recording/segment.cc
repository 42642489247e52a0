#include "recording/segment.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "recording/events.h"

namespace sluice::recording {
namespace {

constexpr std::string_view kMagic = "SLUICEFLIGHT";  // followed by the version, 4 bytes
constexpr size_t kFileHead = 12 + 4 + 4 + 4;         // magic, version, size and CRC of the header
constexpr size_t kChunkHead = 4 + 2 + 2 + 8 + 4;     // size, stream, 0, number, CRC
constexpr size_t kMaxHeaderBytes = size_t{1} << 20;
constexpr size_t kMaxChunkBytes = kMaxEventBytes + 64;

template <typename T>
void PutInteger(std::string& out, T value) {
  for (size_t i = 0; i < sizeof value; ++i)
    out.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
}

template <typename T>
T IntegerAt(std::string_view bytes, size_t place) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[place + i])) << (8 * i);
  return static_cast<T>(value);
}

std::array<std::array<uint32_t, 256>, 8> MakeCrcTables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
    tables[0][byte] = crc;
  }
  for (uint32_t byte = 0; byte < 256; ++byte) {
    for (size_t i = 1; i < tables.size(); ++i)
      tables[i][byte] = (tables[i - 1][byte] >> 8) ^ tables[0][tables[i - 1][byte] & 0xFF];
  }
  return tables;
}

}  // namespace

uint32_t Crc32c(std::string_view bytes, uint32_t crc) {
  static const auto kTables = MakeCrcTables();
  crc = ~crc;
  while (bytes.size() >= 8) {
    const uint64_t word = IntegerAt<uint64_t>(bytes, 0) ^ crc;
    crc = 0;
    for (size_t i = 0; i < 8; ++i) crc ^= kTables[7 - i][(word >> (8 * i)) & 0xFF];
    bytes.remove_prefix(8);
  }
  for (const char byte : bytes)
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~crc;
}

Result<std::unique_ptr<SegmentWriter>> SegmentWriter::Create(const std::filesystem::path& path,
                                                             const json::Value& header) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  std::FILE* const file = fd < 0 ? nullptr : fdopen(fd, "wb");
  if (file == nullptr) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return Fail(ErrorCode::kUnavailable,
                fmt::format("{}: cannot be created: {}", path.string(), std::strerror(error)));
  }
  std::unique_ptr<SegmentWriter> writer(new SegmentWriter(path, file));
  const std::string text = json::Write(header);
  std::string head(kMagic);
  PutInteger(head, static_cast<uint32_t>(kFormatVersion));
  PutInteger(head, static_cast<uint32_t>(text.size()));
  PutInteger(head, Crc32c(text));
  RETURN_IF_ERROR(writer->Write(head + text));
  return writer;
}

Status SegmentWriter::Write(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size())
    return Fail(ErrorCode::kUnavailable,
                fmt::format("{}: cannot be written: {}", path_.string(), std::strerror(errno)));
  bytes_ += bytes.size();
  return {};
}

Status SegmentWriter::Append(uint16_t stream, std::string_view events) {
  std::string head;
  PutInteger(head, static_cast<uint32_t>(events.size()));
  PutInteger(head, stream);
  PutInteger(head, uint16_t{0});
  PutInteger(head, num_chunks_++);
  PutInteger(head, Crc32c(events, Crc32c(head)));
  RETURN_IF_ERROR(Write(head));
  return Write(events);
}

Status SegmentWriter::Flush() {
  if (std::fflush(file_.get()) == 0) return {};
  return Fail(ErrorCode::kUnavailable,
              fmt::format("{}: cannot be written: {}", path_.string(), std::strerror(errno)));
}

Result<Segment> ReadSegment(std::string_view bytes) {
  if (bytes.size() < kFileHead || !bytes.starts_with(kMagic))
    return Fail(ErrorCode::kInvalidData, "expected a file of a recording, found another");
  const auto version = IntegerAt<uint32_t>(bytes, kMagic.size());
  if (version != kFormatVersion) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("expected version {} of the format, found {}; use the program that "
                            "recorded it",
                            kFormatVersion, version));
  }
  const auto size = IntegerAt<uint32_t>(bytes, kMagic.size() + 4);
  const auto crc = IntegerAt<uint32_t>(bytes, kMagic.size() + 8);
  if (size > kMaxHeaderBytes || size > bytes.size() - kFileHead)
    return Fail(ErrorCode::kInvalidData, "the header is cut off");
  const std::string_view text = bytes.substr(kFileHead, size);
  if (Crc32c(text) != crc) return Fail(ErrorCode::kInvalidData, "the header is damaged");
  auto header = json::Parse(text, {.max_bytes = kMaxHeaderBytes, .max_depth = 16});
  if (!header || !header->is_object())
    return Fail(ErrorCode::kInvalidData, "the header is not a JSON object");
  Segment segment{.header = *std::move(header), .chunks = {}, .damage = ""};
  size_t place = kFileHead + size;
  for (uint64_t number = 0; place < bytes.size(); ++number) {
    const auto damaged = [&](std::string_view what) {
      segment.damage = fmt::format("{} at byte {}", what, place);
    };
    if (bytes.size() - place < kChunkHead) {
      damaged("cut off");
      break;
    }
    const std::string_view head = bytes.substr(place, kChunkHead);
    const auto length = IntegerAt<uint32_t>(head, 0);
    if (length > kMaxChunkBytes || IntegerAt<uint64_t>(head, 8) != number) {
      damaged("damaged");
      break;
    }
    if (length > bytes.size() - place - kChunkHead) {
      damaged("cut off");
      break;
    }
    const std::string_view events = bytes.substr(place + kChunkHead, length);
    if (Crc32c(events, Crc32c(head.substr(0, kChunkHead - 4))) !=
        IntegerAt<uint32_t>(head, kChunkHead - 4)) {
      damaged("damaged");
      break;
    }
    segment.chunks.push_back({IntegerAt<uint16_t>(head, 4), events});
    place += kChunkHead + length;
  }
  return segment;
}

}  // namespace sluice::recording
