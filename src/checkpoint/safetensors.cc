#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "base/json_count.h"
#include "base/json_fields.h"

namespace sluice {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr int kMaxHeaderDepth = 16;
// Maximum number of JSON values in a header: a tensor's entry has about eight. During parsing, each
// value takes up to about 100 bytes.
constexpr size_t kMaxHeaderValues = 12 * kMaxTensors;

tl::unexpected<Error> InvalidFile(std::string message) {
  return Fail(ErrorCode::kInvalidData, std::move(message));
}

Status CheckMetadata(const json::Value& metadata) {
  if (metadata.is_null()) return {};
  if (!metadata.is_object())
    return InvalidFile(
        fmt::format("__metadata__ must be an object, found {}", ShortText(metadata)));
  for (const auto& [key, value] : metadata.as_object()) {
    if (!value.is_string())
      return InvalidFile(fmt::format("__metadata__ entry '{}' must be a string, found {}",
                                     ShortName(key), ShortText(value)));
  }
  return {};
}

// Checks the entry of a single tensor. `data_start`: file offset of the data part.
Result<TensorInfo> ReadTensor(const std::string& name, const json::Value& entry,
                              uint64_t data_start, uint64_t data_size) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  if (name.size() > kMaxTensorNameBytes)
    return InvalidFile(fmt::format("has a name of more than {} bytes", kMaxTensorNameBytes));
  if (!entry.is_object())
    return InvalidFile(fmt::format("must be an object, found {}", ShortText(entry)));
  // Other keys are ignored, as in the format's reference reader.
  const JsonFields fields(entry, "");
  ASSIGN_OR_RETURN(const auto dtype, fields.String("dtype"));
  ASSIGN_OR_RETURN(const auto shape, fields.Integers("shape", 0, kMax));
  ASSIGN_OR_RETURN(const auto offsets, fields.Integers("data_offsets", 0, kMax));
  if (!dtype) return InvalidFile("has no dtype");
  if (!shape) return InvalidFile("has no shape");
  if (shape->size() > kMaxTensorRank)
    return InvalidFile(fmt::format("has a shape of more than {} dimensions", kMaxTensorRank));
  if (!offsets || offsets->size() != 2) return InvalidFile("needs data_offsets [begin, end]");
  const auto type = ParseElementType(*dtype);
  if (!type) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("has dtype '{}', which is not supported", ShortName(*dtype)));
  }
  TensorInfo tensor;
  tensor.name = name;
  tensor.type = *type;
  uint64_t bits = static_cast<uint64_t>(BitsPerElement(*type));
  tensor.shape = *shape;
  const bool is_empty = std::find(shape->begin(), shape->end(), 0) != shape->end();
  for (const int64_t dimension : *shape) {
    if (!is_empty && __builtin_mul_overflow(bits, dimension, &bits))
      return InvalidFile("has a shape whose size overflows");
  }
  if (is_empty) bits = 0;
  if (bits % 8 != 0)
    return InvalidFile(fmt::format("has {} bits, which is not a whole number of bytes", bits));
  const auto begin = static_cast<uint64_t>((*offsets)[0]);
  const auto end = static_cast<uint64_t>((*offsets)[1]);
  if (end < begin)
    return InvalidFile(
        fmt::format("has data_offsets [{}, {}] that end before they begin", begin, end));
  if (end > data_size) {
    return InvalidFile(
        fmt::format("has data_offsets [{}, {}], but the file holds only {} bytes of data; it may "
                    "be truncated: download or copy it again",
                    begin, end, data_size));
  }
  if (end - begin != bits / 8) {
    return InvalidFile(fmt::format(
        "of shape {} and dtype {} takes {} bytes, but its data_offsets [{}, {}] hold {}",
        ShapeText(tensor.shape), *dtype, bits / 8, begin, end, end - begin));
  }
  tensor.offset = data_start + begin;
  tensor.size_bytes = end - begin;
  return tensor;
}

// Checks that the tensors, by ascending offset, are contiguous and end at the end of the file.
Status CheckCover(const std::vector<TensorInfo>& tensors, uint64_t data_start, uint64_t file_size) {
  uint64_t expected = data_start;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.offset != expected) {
      return InvalidFile(fmt::format(
          "tensor '{}': begins at byte {} of the data, expected {}: {}", tensor.name,
          tensor.offset - data_start, expected - data_start,
          tensor.offset < expected ? "it overlaps another tensor" : "there is a gap before it"));
    }
    expected += tensor.size_bytes;
  }
  if (expected != file_size) {
    return InvalidFile(fmt::format("the tensors end at byte {} of the file, but it has {} bytes",
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
    return InvalidFile(
        "is only a Git LFS pointer to the tensors: fetch them with `git lfs pull`, or download the "
        "file again");
  }
  if (file_size < kLengthBytes || file.size() < kLengthBytes) {
    return InvalidFile(
        fmt::format("{} bytes are too few for a safetensors file; it may be truncated: download or "
                    "copy it again",
                    file_size));
  }
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<uint64_t>(file[i]);
  if (length > kMaxHeaderBytes) {
    return InvalidFile(
        fmt::format("header length {} is above the limit of {}: this is not a safetensors file, or "
                    "it is damaged",
                    length, kMaxHeaderBytes));
  }
  if (length < 2)
    return InvalidFile(fmt::format("header length {} is too small for a header", length));
  if (length > file_size - kLengthBytes || length > file.size() - kLengthBytes) {
    return InvalidFile(
        fmt::format("header length {} does not fit in the file's {} bytes; it may be truncated: "
                    "download or copy it again",
                    length, file_size));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  if (text[0] != '{') return InvalidFile("header does not begin with '{'");
  if (json::Measure(text).values > kMaxHeaderValues)
    return InvalidFile(fmt::format("the header holds more than {} values", kMaxHeaderValues));
  const auto root = json::Parse(
      text,
      {.max_bytes = kMaxHeaderBytes, .max_depth = kMaxHeaderDepth, .allow_duplicates = false});
  if (!root) return InvalidFile("the header: " + root.error().message);

  const uint64_t data_start = kLengthBytes + length;
  SafetensorsHeader header;
  for (const auto& [name, entry] : root->as_object()) {
    if (name == "__metadata__") {
      RETURN_IF_ERROR(CheckMetadata(entry));
      continue;
    }
    if (header.tensors.size() == kMaxTensors)
      return InvalidFile(fmt::format("more than {} tensors", kMaxTensors));
    auto tensor = ReadTensor(name, entry, data_start, file_size - data_start);
    if (!tensor) {
      return tl::unexpected<Error>(
          std::move(tensor).error().In(fmt::format("tensor '{}'", ShortName(name))));
    }
    header.tensors.push_back(*std::move(tensor));
  }
  // An empty tensor has the same offset as the next one and precedes it.
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
