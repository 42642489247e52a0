#include "hub/repository_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/ascii.h"
#include "base/file.h"
#include "base/owned_fd.h"
#include "base/write_error.h"
#include "hub/model_reference.h"

namespace sluice {
namespace {

constexpr uint64_t kMaxRefBytes = 256;
constexpr std::string_view kFolderStart = "models--";

bool IsCacheFolder(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

// Returns the commit in a file of refs/.
Result<std::string> ReadReference(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxRefBytes));
  return std::string(AsciiTrim(text));
}

std::string CacheFolderName(std::string_view id) {
  std::string name(kFolderStart);
  for (const char c : id) name += c == '/' ? std::string("--") : std::string(1, c);
  return name;
}

// Replaces a small file atomically: readers see either the old or the new content.
Status ReplaceFile(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path temporary =
      path.parent_path() / fmt::format("{}.{}.tmp", path.filename().string(), ::getpid());
  const OwnedFd file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) return CacheError("create", temporary, errno);
  const ssize_t written = ::write(file.get(), text.data(), text.size());
  int number = written < 0 ? errno : ENOSPC;
  bool whole = written == std::ssize(text);
  // The content must reach the disk before the new name.
  if (whole && ::fsync(file.get()) != 0) {
    whole = false;
    number = errno;
  }
  if (!whole) {
    ::unlink(temporary.c_str());
    return CacheError("write", temporary, number);
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int rename_number = errno;
    ::unlink(temporary.c_str());
    return CacheError("create", path, rename_number);
  }
  return {};
}

// Never returns kInvalidArgument, which would be misleading: the cache is not an argument of the
// command.
ErrorCode CacheErrorCode(int error_number) {
  const ErrorCode code = WriteErrorCode(error_number, ErrorCode::kUnavailable);
  return code == ErrorCode::kInvalidArgument ? ErrorCode::kUnavailable : code;
}

}  // namespace

tl::unexpected<Error> CacheError(std::string_view what, const std::filesystem::path& path,
                                 int error_number) {
  std::string advice;
  if (error_number == EROFS || error_number == EACCES || error_number == EPERM ||
      error_number == ENOTDIR || error_number == EEXIST) {
    advice = ": name a folder that can be written with --download-dir or HF_HUB_CACHE";
  } else if (error_number == ENOSPC || error_number == EDQUOT) {
    advice =
        ": make room, or name a folder on another disk with --download-dir or HF_HUB_CACHE; the "
        "partial download is kept and resumed";
  }
  return Fail(
      CacheErrorCode(error_number),
      fmt::format("cannot {} {}: {}{}", what, path.string(), std::strerror(error_number), advice),
      path.string());
}

std::string IdOfCacheFolder(std::string_view name) {
  if (!name.starts_with(kFolderStart)) return "";
  name.remove_prefix(kFolderStart.size());
  std::string id(name);
  if (const size_t place = id.find("--"); place != std::string::npos) id.replace(place, 2, "/");
  return IsHubId(id) ? id : "";
}

RepositoryCache::RepositoryCache(std::filesystem::path cache, std::string_view id)
    : cache_(std::move(cache)), name_(CacheFolderName(id)), folder_(cache_ / name_) {}

std::filesystem::path RepositoryCache::Snapshot(std::string_view commit) const {
  return folder_ / "snapshots" / commit;
}

std::filesystem::path RepositoryCache::Blob(std::string_view etag) const {
  return folder_ / "blobs" / etag;
}

std::filesystem::path RepositoryCache::Incomplete(std::string_view etag) const {
  return folder_ / "blobs" / (std::string(etag) + ".incomplete");
}

std::filesystem::path RepositoryCache::Lock(std::string_view etag) const {
  return LockFolder() / (std::string(etag) + ".lock");
}

std::filesystem::path RepositoryCache::LockFolder() const {
  return cache_ / ".locks" / name_;
}

bool RepositoryCache::Exists() const {
  return IsCacheFolder(folder_);
}

std::vector<std::string> RepositoryCache::Snapshots() const {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder_ / "snapshots", error), end;
       !error && entry != end; entry.increment(error)) {
    if (IsCacheFolder(entry->path())) names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::string> RepositoryCache::FindCommit(const std::string& revision,
                                                std::string& why_not) const {
  if (!Exists()) {
    why_not = fmt::format("{} does not exist", folder_.string());
    return std::string();
  }
  const std::string name = revision.empty() ? "main" : revision;
  if (IsCommit(name)) {
    if (IsCacheFolder(Snapshot(name))) return name;
    why_not = fmt::format("{} has no snapshot {}", folder_.string(), name);
    return std::string();
  }
  const std::filesystem::path ref = folder_ / "refs" / name;
  const auto commit = ReadReference(ref);
  if (commit) {
    if (!IsCommit(*commit)) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("{}: expected a commit of 40 hexadecimal digits, found '{}'",
                              ref.string(), commit->substr(0, 60)),
                  "model");
    }
    if (IsCacheFolder(Snapshot(*commit))) return *commit;
    why_not = fmt::format("{} names snapshot {}, which does not exist", ref.string(), *commit);
    return std::string();
  }
  // An unreadable reference is an error. Using another commit instead would be wrong.
  if (commit.error().code != ErrorCode::kNotFound) return tl::unexpected<Error>(commit.error());
  const std::vector<std::string> snapshots = Snapshots();
  if (revision.empty() && snapshots.size() == 1) return snapshots.front();
  why_not = fmt::format("{} does not exist", ref.string());
  if (!snapshots.empty())
    why_not += fmt::format(" (snapshots there: {}; choose one with --revision)",
                           fmt::join(snapshots, ", "));
  return std::string();
}

std::map<std::string, std::string> RepositoryCache::References() const {
  std::map<std::string, std::string> references;
  const std::filesystem::path folder = folder_ / "refs";
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator entry(folder, error), end;
       !error && entry != end; entry.increment(error)) {
    if (const auto commit = ReadReference(entry->path()))
      references[entry->path().lexically_relative(folder).string()] = *commit;
  }
  return references;
}

Status RepositoryCache::WriteReference(const std::string& revision,
                                       const std::string& commit) const {
  if (revision == commit) return {};
  const std::filesystem::path path = folder_ / "refs" / revision;
  if (const auto text = ReadFile(path, kMaxRefBytes); text && *text == commit) return {};
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) return CacheError("create", path.parent_path(), error.value());
  return ReplaceFile(path, commit);
}

Status RepositoryCache::LinkFile(std::string_view commit, const std::filesystem::path& file,
                                 std::string_view etag, bool copy) const {
  const std::filesystem::path link = Snapshot(commit) / file;
  std::error_code error;
  std::filesystem::create_directories(link.parent_path(), error);
  if (error) return CacheError("create", link.parent_path(), error.value());
  const std::filesystem::path target = Blob(etag).lexically_relative(link.parent_path());
  // Removes a dangling link.
  if (!std::filesystem::exists(link, error)) ::unlink(link.c_str());
  if (!copy) {
    if (::symlink(target.c_str(), link.c_str()) == 0 || errno == EEXIST) return {};
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EACCES)
      return CacheError("create", link, errno);
  }
  // The file is moved out of the blobs, so no mark protects the file (hub/flush_mark.h). Flushes it
  // now.
  const OwnedFd blob(::open(Blob(etag).c_str(), O_RDONLY | O_CLOEXEC));
  if (!blob) return CacheError("read", Blob(etag), errno);
  if (::fsync(blob.get()) != 0) return CacheError("write", Blob(etag), errno);
  if (::rename(Blob(etag).c_str(), link.c_str()) != 0) return CacheError("create", link, errno);
  return {};
}

}  // namespace sluice
