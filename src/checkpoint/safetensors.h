// The safetensors format: one file of named tensors, read through a mapping.
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

// Where one tensor stands in its file. Row-major, little-endian, no alignment promised.
struct TensorInfo {
  std::string name;
  ElementType type = ElementType::kF32;
  std::vector<int64_t> shape;  // [] is a scalar
  uint64_t offset = 0;         // of its first byte in the file
  uint64_t size_bytes = 0;

  int64_t num_elements() const;
};

// "[4096, 128]".
std::string ShapeText(std::span<const int64_t> shape);

// The checked head of a file: every tensor has a known type and a shape whose size is that of its
// bytes; the tensors cover the data part exactly, without overlap, hole or rest.
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // by rising offset
};

// Limits on what a header may ask for; a real one is far below each.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr size_t kMaxTensors = 1'000'000;
inline constexpr size_t kMaxTensorNameBytes = 4096;
inline constexpr size_t kMaxTensorRank = 64;

// Reads the header at the start of `file`, the first bytes (at least the whole header) of a file of
// `file_size` bytes. kInvalidData says which tensor breaks which rule; kUnsupported names an
// element type that this program does not know. Memory taken is in proportion to the header's own
// length, never to a number in it.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> file,
                                                 uint64_t file_size);

// An open file with its checked header.
// Ownership: owns the mapping; move-only. Thread safety: constant after Open.
class SafetensorsFile {
 public:
  // Errors name the file and, where there is one, the tensor.
  static Result<SafetensorsFile> Open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  // The bytes of one of this file's tensors; valid as long as this object.
  std::span<const std::byte> Bytes(const TensorInfo& tensor) const {
    return file_.bytes().subspan(tensor.offset, tensor.size_bytes);
  }
  // The bytes [offset, offset + size) of the tensor are not needed again: their pages leave this
  // process's memory.
  void Release(const TensorInfo& tensor, uint64_t offset, uint64_t size) const {
    file_.Release(tensor.offset + offset, size);
  }
  // See MappedFile.
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
