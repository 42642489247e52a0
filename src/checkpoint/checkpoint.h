// A checkpoint: the tensors of a folder, in one safetensors file or in shards with an index.
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

// A tensor of the checkpoint and the file that holds it.
struct StoredTensor {
  const TensorInfo* info = nullptr;
  const SafetensorsFile* file = nullptr;

  std::span<const std::byte> bytes() const { return file->Bytes(*info); }
  void Release(uint64_t offset, uint64_t size) const { file->Release(*info, offset, size); }
  void Fetch(uint64_t offset, uint64_t size) const { file->Fetch(*info, offset, size); }
};

// The name under which this program knows a module or tensor: without "language_model." in front of
// "model." or "lm_head", with "model." for "model.language_model.", and with the "model." that
// files without a head leave out.
std::string CanonicalName(std::string_view name);

// All tensors of a model's folder, by their canonical names. Which file counts: with
// model.safetensors.index.json, for each tensor the one file that the index names (copies elsewhere
// are stale and ignored); else model.safetensors; else a complete set
// model-?????-of-?????.safetensors. Ownership: owns the mappings; move-only. Thread safety:
// constant after Open.
class Checkpoint {
 public:
  // Reads all headers, no data. A missing shard is an error that names the tensors it should hold.
  static Result<Checkpoint> Open(const std::filesystem::path& folder);
  // The same of what is there: the first missing shard's error is missing_shard(), the names of all
  // are missing_files().
  static Result<Checkpoint> OpenIncomplete(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  // The tensor of that canonical name, or null.
  const StoredTensor* Find(std::string_view name) const;
  // By name.
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  int64_t total_bytes() const { return total_bytes_; }
  // "" and none of a complete checkpoint.
  const std::string& missing_shard() const { return missing_shard_; }
  const std::vector<std::string>& missing_files() const { return missing_files_; }

 private:
  Status AddFile(const std::string& name);
  Status AddTensor(const TensorInfo& info, const SafetensorsFile& file);
  Status OpenFolder();
  Status OpenIndexed(const std::filesystem::path& index);
  Status OpenNumbered();
  // An error, or in an incomplete checkpoint a note.
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

// tensor name -> file name, as model.safetensors.index.json says it.
struct ShardIndex {
  std::map<std::string, std::string, std::less<>> weight_map;
  uint64_t total_size = 0;  // what the index claims; 0 if it claims nothing readable
};

// Reads the text of an index. A file name that is not a plain name ("../x", "/x", "a/b") is
// refused.
Result<ShardIndex> ParseShardIndex(std::string_view text);

}  // namespace sluice
