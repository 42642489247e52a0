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

// Where uploads are kept.
struct UploadSettings {
  std::filesystem::path parent;  // "": the system's folder for temporary files
  uint64_t most_bytes = 0;       // of one upload; 0: twice those of the weights that compute
};

// A folder of its own under `parent`, which goes with this object: what has been mapped from it
// stays valid. Each piece is a whole safetensors file with some of the tensors; of a tensor that
// comes twice the last one counts, so that a piece may be sent again.
//
// Thread safety: one thread at a time.
class WeightUpload {
 public:
  static constexpr size_t kMostPieces = 10'000;
  // The Error::param of what has too many pieces or bytes.
  static constexpr std::string_view kTooLarge = "max_bytes";

  // Errors name the folder.
  static Result<std::unique_ptr<WeightUpload>> Make(const std::filesystem::path& parent,
                                                    uint64_t most_bytes);
  ~WeightUpload();
  WeightUpload(const WeightUpload&) = delete;
  WeightUpload& operator=(const WeightUpload&) = delete;

  // Keeps a piece; returns its number of tensors. kInvalidData for bytes that are no safetensors
  // file, such as one that is cut off; kResourceExhausted for too many pieces or bytes, and for a
  // disk that is full. After an error the pieces before it are still there.
  Result<int64_t> Add(std::string_view piece);
  // Makes a checkpoint of the pieces: `folder()` can be loaded.
  Status Seal() const;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  WeightUpload(std::filesystem::path folder, uint64_t most_bytes)
      : folder_(std::move(folder)), most_bytes_(most_bytes) {}

  const std::filesystem::path folder_;
  const uint64_t most_bytes_;
  uint64_t bytes_ = 0;
  size_t num_pieces_ = 0;
  std::map<std::string, std::string> file_of_;  // by tensor
};

}  // namespace sluice
