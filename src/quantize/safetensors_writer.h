// Writes a folder of safetensors files. The tensors are known in advance; their data may come in
// any order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/element_type.h"

namespace sluice {

struct PlannedTensor {
  std::string name;
  ElementType type = ElementType::kF32;
  std::vector<int64_t> shape;

  int64_t size_bytes() const;
};

// Ownership: owns the open files. Thread safety: one thread at a time.
class SafetensorsWriter {
 public:
  // Distributes the tensors, in the order of the list, over files of at most `max_file_bytes` (a
  // tensor is never split), and creates the files in `folder` with their full size. Within a file,
  // tensors are sorted by descending element size, so that each is aligned for its type. REQUIRES:
  // names are unique.
  static Result<SafetensorsWriter> Create(const std::filesystem::path& folder,
                                          std::vector<PlannedTensor> tensors,
                                          int64_t max_file_bytes);
  SafetensorsWriter(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;
  ~SafetensorsWriter();

  // Writes a part of a tensor's data, starting at byte `offset`.
  Status Write(const std::string& tensor, int64_t offset, std::span<const std::byte> bytes);

  // Checks that every byte was written once, writes the index if there are several files, and
  // flushes all files to disk.
  Status Finish();

  int64_t total_bytes() const { return total_bytes_; }

 private:
  struct Place {
    size_t file = 0;
    int64_t offset = 0;  // offset in the file
    int64_t size = 0;
    int64_t written = 0;
  };

  SafetensorsWriter() = default;
  Status CreateFile(const std::string& name, std::vector<const PlannedTensor*> tensors);

  std::filesystem::path folder_;
  std::vector<std::string> names_;
  std::vector<int> files_;
  std::map<std::string, Place, std::less<>> places_;
  int64_t total_bytes_ = 0;
};

}  // namespace sluice
