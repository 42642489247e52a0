#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/utf8.h"
#include "checkpoint/json_cursor.h"

namespace sluice {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kMaxMetadataBytes = size_t{16} << 20;
constexpr int kMaxSkippedDepth = 16;

tl::unexpected<Error> Invalid(std::string message) {
  return Fail(ErrorCode::kInvalidData, std::move(message));
}

// What one entry of the header says, before it is checked against the others.
struct Entry {
  std::optional<std::string> dtype;
  std::optional<std::vector<uint64_t>> shape;
  std::optional<std::vector<uint64_t>> offsets;
};

Result<std::vector<uint64_t>> ReadIntegers(JsonCursor& cursor, std::string_view what,
                                           size_t max_count) {
  std::vector<uint64_t> values;
  RETURN_IF_ERROR(cursor.Array(what, [&]() -> Status {
    if (values.size() == max_count)
      return cursor.Bad(fmt::format("{} has more than {} numbers", what, max_count));
    ASSIGN_OR_RETURN(const uint64_t value, cursor.Unsigned(what));
    values.push_back(value);
    return {};
  }));
  return values;
}

Result<Entry> ReadEntry(JsonCursor& cursor) {
  Entry entry;
  RETURN_IF_ERROR(
      cursor.Object("a tensor's entry", kMaxTensorNameBytes, [&](const std::string& key) -> Status {
        if (key == "dtype") {
          if (entry.dtype) return cursor.Bad("dtype stands twice");
          ASSIGN_OR_RETURN(entry.dtype, cursor.String(64));
        } else if (key == "shape") {
          if (entry.shape) return cursor.Bad("shape stands twice");
          ASSIGN_OR_RETURN(entry.shape, ReadIntegers(cursor, "shape", kMaxTensorRank));
        } else if (key == "data_offsets") {
          if (entry.offsets) return cursor.Bad("data_offsets stand twice");
          ASSIGN_OR_RETURN(entry.offsets, ReadIntegers(cursor, "data_offsets", 2));
        } else {
          // Other keys have no meaning in the format; its reference reader passes over them too.
          return cursor.Skip(kMaxSkippedDepth);
        }
        return {};
      }));
  return entry;
}

Status ReadMetadata(JsonCursor& cursor) {
  if (cursor.Peek() == 'n') return cursor.Skip(0);
  size_t total = 0;
  return cursor.Object("__metadata__", kMaxMetadataBytes, [&](const std::string& key) -> Status {
    if (cursor.Peek() != '"')
      return cursor.Bad(fmt::format("__metadata__ entry '{}' must be a string", key));
    ASSIGN_OR_RETURN(const std::string value, cursor.String(kMaxMetadataBytes));
    total += key.size() + value.size();
    if (total > kMaxMetadataBytes)
      return cursor.Bad(fmt::format("__metadata__ larger than {} bytes", kMaxMetadataBytes));
    return {};
  });
}

// Checks one entry by itself. `data_start` is the file offset of the data part.
Result<TensorInfo> MakeTensor(std::string name, const Entry& entry, uint64_t data_start,
                              uint64_t data_size) {
  if (!entry.dtype) return Invalid("has no dtype");
  if (!entry.shape) return Invalid("has no shape");
  if (!entry.offsets || entry.offsets->size() != 2)
    return Invalid("needs data_offsets [begin, end]");
  const auto type = ParseElementType(*entry.dtype);
  if (!type) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("has dtype '{}', which this program does not read",
                            entry.dtype->substr(0, 32)));
  }
  TensorInfo tensor;
  tensor.name = std::move(name);
  tensor.type = *type;
  uint64_t bits = static_cast<uint64_t>(BitsPerElement(*type));
  const bool is_empty =
      std::find(entry.shape->begin(), entry.shape->end(), 0) != entry.shape->end();
  for (const uint64_t dimension : *entry.shape) {
    if (dimension > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return Invalid("has a shape that is too large");
    tensor.shape.push_back(static_cast<int64_t>(dimension));
    if (!is_empty && __builtin_mul_overflow(bits, dimension, &bits))
      return Invalid("has a shape whose size overflows");
  }
  if (is_empty) bits = 0;
  if (bits % 8 != 0) return Invalid(fmt::format("has {} bits, which are no whole bytes", bits));
  const uint64_t begin = (*entry.offsets)[0], end = (*entry.offsets)[1];
  if (end < begin)
    return Invalid(fmt::format("has data_offsets [{}, {}] that run backwards", begin, end));
  if (end > data_size) {
    return Invalid(fmt::format(
        "has data_offsets [{}, {}], but the file holds only {} bytes of data; it may be cut short: "
        "download it again",
        begin, end, data_size));
  }
  if (end - begin != bits / 8) {
    return Invalid(fmt::format(
        "of shape {} and dtype {} takes {} bytes, but its data_offsets [{}, {}] hold {}",
        ShapeText(tensor.shape), *entry.dtype, bits / 8, begin, end, end - begin));
  }
  tensor.offset = data_start + begin;
  tensor.size_bytes = end - begin;
  return tensor;
}

// The tensors, by rising offset, must follow each other without overlap or hole and end with the
// file.
Status CheckCover(const std::vector<TensorInfo>& tensors, uint64_t data_start, uint64_t file_size) {
  uint64_t expected = data_start;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.offset != expected) {
      return Invalid(fmt::format(
          "tensor '{}': begins at byte {} of the data, expected {}: {}", tensor.name,
          tensor.offset - data_start, expected - data_start,
          tensor.offset < expected ? "it overlaps another tensor" : "there is a hole before it"));
    }
    expected += tensor.size_bytes;
  }
  if (expected != file_size) {
    return Invalid(fmt::format("the tensors end at byte {} of the file, but it has {} bytes",
                               expected, file_size));
  }
  return {};
}

}  // namespace

int64_t TensorInfo::num_elements() const {
  int64_t count = 1;
  for (const int64_t dimension : shape) {
    if (dimension == 0) return 0;
  }
  for (const int64_t dimension : shape) count *= dimension;
  return count;
}

std::string ShapeText(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> file,
                                                 uint64_t file_size) {
  constexpr std::string_view kLfsPointer = "version https://git-lfs";
  if (std::string_view(reinterpret_cast<const char*>(file.data()), file.size())
          .starts_with(kLfsPointer)) {
    return Invalid(
        "is only a pointer of Git LFS to the tensors: fetch them with `git lfs pull`, or download "
        "the file again");
  }
  if (file_size < kLengthBytes || file.size() < kLengthBytes) {
    return Invalid(fmt::format(
        "{} bytes are too few for a safetensors file; it may be cut short: download it again",
        file_size));
  }
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<uint64_t>(file[i]);
  if (length > kMaxHeaderBytes) {
    return Invalid(fmt::format(
        "header length {} is above the limit of {}: this is no safetensors file or it is damaged",
        length, kMaxHeaderBytes));
  }
  if (length < 2) return Invalid(fmt::format("header length {} is too small for a header", length));
  if (length > file_size - kLengthBytes || length > file.size() - kLengthBytes) {
    return Invalid(
        fmt::format("header length {} is more than the file's {} bytes hold; it may be cut short: "
                    "download it again",
                    length, file_size));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  if (text[0] != '{') return Invalid("header does not begin with '{'");
  if (!IsValidUtf8(text)) return Invalid("header is not valid UTF-8");

  const uint64_t data_start = kLengthBytes + length;
  SafetensorsHeader header;
  std::unordered_set<std::string> names;
  bool has_metadata = false;
  JsonCursor cursor(text);
  RETURN_IF_ERROR(cursor.Object("the header", kMaxTensorNameBytes, [&](std::string name) -> Status {
    if (name == "__metadata__") {
      if (has_metadata) return cursor.Bad("__metadata__ stands twice");
      has_metadata = true;
      return ReadMetadata(cursor);
    }
    if (header.tensors.size() == kMaxTensors)
      return cursor.Bad(fmt::format("more than {} tensors", kMaxTensors));
    if (!names.insert(name).second) return Invalid(fmt::format("tensor '{}': stands twice", name));
    const std::string context = fmt::format("tensor '{}'", name);
    auto entry = ReadEntry(cursor);
    if (!entry) return tl::unexpected<Error>(std::move(entry).error().In(context));
    auto tensor = MakeTensor(std::move(name), *entry, data_start, file_size - data_start);
    if (!tensor) return tl::unexpected<Error>(std::move(tensor).error().In(context));
    header.tensors.push_back(*std::move(tensor));
    return {};
  }));
  if (!cursor.AtEnd()) return cursor.Bad("text after the header's object");
  // Empty tensors share their offset with the next one and come before it.
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) {
              return a.offset != b.offset ? a.offset < b.offset : a.size_bytes < b.size_bytes;
            });
  RETURN_IF_ERROR(CheckCover(header.tensors, data_start, file_size));
  return header;
}

Result<SafetensorsFile> SafetensorsFile::Open(const std::filesystem::path& path) {
  SafetensorsFile file;
  file.path_ = path;
  ASSIGN_OR_RETURN(file.file_, MappedFile::Open(path));
  const auto bytes = file.file_.bytes();
  auto header = ParseSafetensorsHeader(bytes, bytes.size());
  if (!header) {
    Error error = std::move(header).error().In(path.string());
    error.param = path.filename().string();
    return tl::unexpected<Error>(std::move(error));
  }
  file.header_ = *std::move(header);
  return file;
}

}  // namespace sluice
