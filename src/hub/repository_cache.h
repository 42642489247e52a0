// A model's folder in the Hugging Face cache, with the layout of huggingface_hub:
//
//   CACHE/models--ORG--NAME/refs/main                  the commit of a branch or tag
//   CACHE/models--ORG--NAME/blobs/ETAG                 a file's content; ETAG.incomplete: a prefix
//   CACHE/models--ORG--NAME/snapshots/COMMIT/FILE      a link to the blob
//   CACHE/.locks/models--ORG--NAME/ETAG.lock           held while the blob is written
//
// Thread safety: functions keep no state; other processes may use the same cache.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

class RepositoryCache {
 public:
  // REQUIRES: IsHubId(id).
  RepositoryCache(std::filesystem::path cache, std::string_view id);

  const std::filesystem::path& cache() const { return cache_; }
  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path Snapshot(std::string_view commit) const;
  std::filesystem::path Blob(std::string_view etag) const;
  std::filesystem::path Incomplete(std::string_view etag) const;
  std::filesystem::path Lock(std::string_view etag) const;
  std::filesystem::path LockFolder() const;
  bool Exists() const;

  // Returns the commit of a revision ("": main) in this cache, or "" and the reason in `why_not`.
  // Without a revision and without refs/main, uses the only snapshot. A reference that exists but
  // cannot be read is an error.
  Result<std::string> FindCommit(const std::string& revision, std::string& why_not) const;
  // Returns the commits of all branches and tags; omits unreadable ones.
  std::map<std::string, std::string> References() const;
  // REQUIRES: IsRevisionName(revision).
  Status WriteReference(const std::string& revision, const std::string& commit) const;

  // Makes `file` (a relative path) of a snapshot a link to the blob. If links are not possible, or
  // if `copy`, flushes the blob to the disk and moves it to `file`, as huggingface_hub does.
  Status LinkFile(std::string_view commit, const std::filesystem::path& file, std::string_view etag,
                  bool copy) const;

  // Returns the commits of the snapshots, sorted.
  std::vector<std::string> Snapshots() const;

 private:
  std::filesystem::path cache_;
  std::string name_;  // "models--org--name"
  std::filesystem::path folder_;
};

// Returns the id for a cache folder: "org/name" for "models--org--name"; "" for other names.
std::string IdOfCacheFolder(std::string_view name);

// Returns "cannot <what> <path>: <reason>": kUnavailable, kUnsupported or kResourceExhausted.
tl::unexpected<Error> CacheError(std::string_view what, const std::filesystem::path& path,
                                 int error_number);

}  // namespace sluice
