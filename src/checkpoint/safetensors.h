// The safetensors format: a file of named tensors, read through a memory mapping.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "tensor/element_type.h"

namespace sluice {

// Describes a tensor and its location in the file. The tensor's data is row-major, little-endian
// and possibly unaligned.
struct TensorInfo {
  std::string name;
  ElementType type = ElementType::kF32;
  std::vector<int64_t> shape;  // [] means a scalar
  uint64_t offset = 0;         // offset of the first byte, counted from the start of the file
  uint64_t size_bytes = 0;

  int64_t num_elements() const;
};

// Formats a shape: "[4096, 128]".
std::string ShapeText(std::span<const int64_t> shape);

// A validated header: every tensor has a known type and a shape that matches its number of bytes,
// and the tensors cover the data part exactly, without overlaps or gaps.
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // by ascending offset
};

// Limits for a header, far above those of real files.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr size_t kMaxTensors = 1'000'000;
inline constexpr size_t kMaxTensorNameBytes = 4096;
inline constexpr size_t kMaxTensorRank = 64;

// Parses the header of a file of `file_size` bytes. `file`: its first bytes, at least the whole
// header. kInvalidData names the tensor and the violated rule; kUnsupported names an unknown
// element type. Memory use is proportional to the header's length, whatever numbers the header
// contains.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> file,
                                                 uint64_t file_size);

// An open file with its validated header. Ownership: owns the mapping; move-only. Thread safety:
// immutable after Open.
class SafetensorsFile {
 public:
  // Errors name the file and, if known, the tensor.
  static Result<SafetensorsFile> Open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  // Returns the data of one of this file's tensors. The view is valid as long as this object.
  std::span<const std::byte> Bytes(const TensorInfo& tensor) const {
    return file_.bytes().subspan(tensor.offset, tensor.size_bytes);
  }
  // Releases the pages of bytes [offset, offset + size) of the tensor, which are not needed again.
  void Release(const TensorInfo& tensor, uint64_t offset, uint64_t size) const {
    file_.Release(tensor.offset + offset, size);
  }
  // See MappedFile::ReadSparsely.
  void ReadSparsely() const { file_.ReadSparsely(); }
  void Fetch(const TensorInfo& tensor, uint64_t offset, uint64_t size) const {
    file_.Fetch(tensor.offset + offset, size);
  }

 private:
  std::filesystem::path path_;
  MappedFile file_;
  SafetensorsHeader header_;
};

}  // namespace sluice
