// A checkpoint that a trainer sends in pieces.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

// The folder in which uploads are stored, and their maximum size.
struct UploadSettings {
  std::filesystem::path parent;  // "": the system's folder for temporary files
  uint64_t most_bytes = 0;       // limit of one upload; 0: twice the size of the weights in use
};

// A new folder under `parent`. The folder is removed with this object; files mapped from it stay
// valid. Each piece is a complete safetensors file with some of the tensors. If a tensor is sent
// twice, the last one counts, so a piece may be sent again.
//
// Thread safety: one thread at a time.
class WeightUpload {
 public:
  static constexpr size_t kMostPieces = 10'000;
  // Error::param for an upload with too many pieces or bytes.
  static constexpr std::string_view kTooLarge = "max_bytes";

  // Errors name the folder.
  static Result<std::unique_ptr<WeightUpload>> Make(const std::filesystem::path& parent,
                                                    uint64_t most_bytes);
  ~WeightUpload();
  WeightUpload(const WeightUpload&) = delete;
  WeightUpload& operator=(const WeightUpload&) = delete;

  // Stores a piece and returns its number of tensors. kInvalidData for bytes that are not a
  // complete safetensors file; kResourceExhausted for too many pieces or bytes, and for a full
  // disk. After an error, the earlier pieces are kept.
  Result<int64_t> Add(std::string_view piece);
  // Writes the index that makes `folder()` a checkpoint of all pieces.
  Status Seal() const;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  WeightUpload(std::filesystem::path folder, uint64_t most_bytes)
      : folder_(std::move(folder)), most_bytes_(most_bytes) {}

  const std::filesystem::path folder_;
  const uint64_t most_bytes_;
  uint64_t bytes_ = 0;
  size_t num_pieces_ = 0;
  std::map<std::string, std::string> file_of_;  // keyed by tensor
};

}  // namespace sluice
