// A checkpoint: the tensors in a folder, from one safetensors file or from shards with an index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/safetensors.h"

namespace sluice {

// A tensor and the file that contains it.
struct StoredTensor {
  const TensorInfo* info = nullptr;
  const SafetensorsFile* file = nullptr;

  std::span<const std::byte> bytes() const { return file->Bytes(*info); }
  void Release(uint64_t offset, uint64_t size) const { file->Release(*info, offset, size); }
  void Fetch(uint64_t offset, uint64_t size) const { file->Fetch(*info, offset, size); }
};

// Returns the canonical name of a module or tensor: removes "language_model." before "model." or
// "lm_head", replaces "model.language_model." by "model.", and adds "model." to the names in files
// without a head, which omit this prefix.
std::string CanonicalName(std::string_view name);

// All tensors in a model folder, by canonical name. With model.safetensors.index.json, a tensor is
// read from the file that the index names; copies elsewhere are outdated and ignored. Otherwise
// tensors come from model.safetensors, else from a complete set model-?????-of-?????.safetensors.
// Ownership: owns the mappings; move-only. Thread safety: immutable after Open.
class Checkpoint {
 public:
  // Reads all headers, but no data. The error for a missing shard names the tensors that it should
  // contain.
  static Result<Checkpoint> Open(const std::filesystem::path& folder);
  // Like Open, but missing shards are not an error: missing_shard() returns the error message for
  // the first one, missing_files() the names of all.
  static Result<Checkpoint> OpenIncomplete(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  // Returns the tensor with this canonical name, or null.
  const StoredTensor* Find(std::string_view name) const;
  // Keyed by canonical name.
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  int64_t total_bytes() const { return total_bytes_; }
  // Empty if the checkpoint is complete.
  const std::string& missing_shard() const { return missing_shard_; }
  const std::vector<std::string>& missing_files() const { return missing_files_; }

 private:
  Status AddFile(const std::string& name);
  Status AddTensor(const TensorInfo& info, const SafetensorsFile& file);
  Status OpenFolder();
  Status OpenIndexed(const std::filesystem::path& index);
  Status OpenNumbered();
  // Returns an error or, for an incomplete checkpoint, records the missing shard.
  Status MissShard(const std::string& name, std::string message);
  Status OpenAll(const std::vector<std::string>& names);

  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  int64_t total_bytes_ = 0;
  bool may_be_incomplete_ = false;
  std::string missing_shard_;
  std::vector<std::string> missing_files_;
};

// Maps tensor names to file names, as in model.safetensors.index.json.
struct ShardIndex {
  std::map<std::string, std::string, std::less<>> weight_map;
  uint64_t total_size = 0;  // as the index states; 0 if absent or unreadable
};

// Parses an index. Rejects file names that contain a path ("../x", "/x", "a/b").
Result<ShardIndex> ParseShardIndex(std::string_view text);

}  // namespace sluice
