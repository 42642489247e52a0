// A model's place in the Hugging Face cache, laid out as huggingface_hub lays it out:
//
//   CACHE/models--ORG--NAME/refs/main                  the commit of a branch or tag
//   CACHE/models--ORG--NAME/blobs/ETAG                 a file's content; ETAG.incomplete: its start
//   CACHE/models--ORG--NAME/snapshots/COMMIT/FILE      a link to the blob
//   CACHE/.locks/models--ORG--NAME/ETAG.lock           held by who writes the blob
//
// Thread safety: none of the functions keeps state; other processes may work on the same cache.
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
  // REQUIRES: IsHubId(id)
  RepositoryCache(std::filesystem::path cache, std::string_view id);

  const std::filesystem::path& cache() const { return cache_; }
  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path Snapshot(std::string_view commit) const;
  std::filesystem::path Blob(std::string_view etag) const;
  std::filesystem::path Incomplete(std::string_view etag) const;
  std::filesystem::path Lock(std::string_view etag) const;
  std::filesystem::path LockFolder() const;
  bool Exists() const;

  // The commit that a revision ("" for main) names here, or "" with the reason in `why_not`.
  // Without a revision and without refs/main, the only snapshot there is counts. A reference that
  // is there and cannot be read is an error.
  Result<std::string> FindCommit(const std::string& revision, std::string& why_not) const;
  // What each branch and tag names; what cannot be read is left out.
  std::map<std::string, std::string> References() const;
  // REQUIRES: IsRevisionName(revision)
  Status WriteReference(const std::string& revision, const std::string& commit) const;

  // Makes `file` (a relative path) of a snapshot a link to the blob. Where links cannot be made, or
  // `copy` is set, the blob is moved there, as huggingface_hub does, once the disk has it.
  Status LinkFile(std::string_view commit, const std::filesystem::path& file, std::string_view etag,
                  bool copy) const;

  // The commits of the snapshots, sorted.
  std::vector<std::string> Snapshots() const;

 private:
  std::filesystem::path cache_;
  std::string name_;  // "models--org--name"
  std::filesystem::path folder_;
};

// The id of a folder of the cache: "org/name" of "models--org--name"; "" for other names.
std::string IdOfCacheFolder(std::string_view name);

// kUnavailable with what the system says of `path`, and what to do if it cannot be written.
tl::unexpected<Error> CacheError(std::string_view what, const std::filesystem::path& path,
                                 int error_number);

}  // namespace sluice
