#include "hub/cached_models.h"

#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hub/file_lock.h"
#include "hub/flush_mark.h"
#include "hub/model_files.h"
#include "hub/model_reference.h"
#include "hub/repository_cache.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// Calls `visit` with every path below a folder; does not follow links.
template <typename Visit>
void ForEachBelow(const fs::path& folder, const Visit& visit) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    visit(*entry);
}

int64_t BytesBelow(const fs::path& folder) {
  int64_t bytes = 0;
  ForEachBelow(folder, [&](const fs::directory_entry& entry) {
    struct stat status {};
    if (::lstat(entry.path().c_str(), &status) == 0 && S_ISREG(status.st_mode))
      bytes += status.st_size;
  });
  return bytes;
}

std::time_t ChangeOf(const fs::path& folder) {
  struct stat status {};
  std::time_t newest = ::stat(folder.c_str(), &status) == 0 ? status.st_mtime : 0;
  for (const char* part : {"blobs", "snapshots"}) {
    if (::stat((folder / part).c_str(), &status) == 0) newest = std::max(newest, status.st_mtime);
  }
  return newest;
}

// Returns the blobs that a snapshot's links point to.
std::set<fs::path> BlobsOf(const fs::path& snapshot) {
  std::set<fs::path> blobs;
  ForEachBelow(snapshot, [&](const fs::directory_entry& entry) {
    std::error_code error;
    const fs::path target = fs::read_symlink(entry.path(), error);
    if (!error) blobs.insert((entry.path().parent_path() / target).lexically_normal());
  });
  return blobs;
}

// kUnavailable if another program holds one of the model's locks.
Status CheckIdle(const RepositoryCache& repository, const std::string& id) {
  std::error_code error;
  for (fs::directory_iterator entry(repository.LockFolder(), error), end; !error && entry != end;
       entry.increment(error)) {
    if (!FileLock::TryAcquireExisting(entry->path())) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("model {} is being downloaded by another program: {} is locked", id,
                              entry->path().string()),
                  "model");
    }
  }
  return {};
}

Status RemoveTree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return CacheError("remove", path, error.value());
  return {};
}

Status RemoveRevision(const RepositoryCache& repository, const std::string& commit) {
  std::set<fs::path> used;
  for (const std::string& other : repository.Snapshots()) {
    if (other != commit) used.merge(BlobsOf(repository.Snapshot(other)));
  }
  const std::set<fs::path> own = BlobsOf(repository.Snapshot(commit));
  // Removes the references first: if the process ends in between, no reference points to a missing
  // commit.
  for (const auto& [name, named] : repository.References()) {
    if (named == commit) RETURN_IF_ERROR(RemoveTree(repository.folder() / "refs" / name));
  }
  RETURN_IF_ERROR(RemoveTree(repository.Snapshot(commit)));
  for (const fs::path& blob : own) {
    if (used.contains(blob) || blob.parent_path() != repository.folder() / "blobs") continue;
    RETURN_IF_ERROR(RemoveTree(blob));
    ForgetMark(repository, blob.filename().string());
  }
  return {};
}

}  // namespace

std::vector<CachedModel> ListCachedModels(const fs::path& cache) {
  std::vector<CachedModel> models;
  std::error_code error;
  for (fs::directory_iterator entry(cache, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string id = IdOfCacheFolder(entry->path().filename().string());
    if (id.empty() || !entry->is_directory(error)) continue;
    const RepositoryCache repository(cache, id);
    CachedModel model{.id = id, .folder = entry->path()};
    model.bytes = BytesBelow(model.folder);
    model.changed = ChangeOf(model.folder);
    const auto references = repository.References();
    for (const std::string& commit : repository.Snapshots()) {
      CachedSnapshot snapshot{.commit = commit};
      for (const auto& [name, named] : references) {
        if (named == commit) snapshot.references.push_back(name);
      }
      snapshot.complete = MissingFiles(repository.Snapshot(commit), ModelPart::kAll).empty();
      model.snapshots.push_back(std::move(snapshot));
    }
    models.push_back(std::move(model));
  }
  std::sort(models.begin(), models.end(),
            [](const CachedModel& a, const CachedModel& b) { return a.id < b.id; });
  return models;
}

Result<int64_t> RemoveCachedModel(const fs::path& cache, const std::string& id,
                                  const std::string& revision) {
  const RepositoryCache repository(cache, id);
  if (!repository.Exists()) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("model {} is not in {}; `sluice list` lists the models there", id,
                            cache.string()),
                "model");
  }
  RETURN_IF_ERROR(CheckIdle(repository, id));
  const int64_t before = BytesBelow(repository.folder());
  if (!revision.empty()) {
    std::string why_not;
    ASSIGN_OR_RETURN(const std::string commit, repository.FindCommit(revision, why_not));
    if (commit.empty()) return Fail(ErrorCode::kNotFound, why_not, "revision");
    RETURN_IF_ERROR(RemoveRevision(repository, commit));
    return before - BytesBelow(repository.folder());
  }
  // Removes the references first: if the process ends in between, nothing looks like a complete
  // model.
  RETURN_IF_ERROR(RemoveTree(repository.folder() / "refs"));
  RETURN_IF_ERROR(RemoveTree(repository.folder() / "snapshots"));
  RETURN_IF_ERROR(RemoveTree(repository.folder()));
  RETURN_IF_ERROR(RemoveTree(repository.LockFolder()));
  return before;
}

}  // namespace sluice
