#include "hub/flush_mark.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/boot_identity.h"
#include "base/file.h"
#include "base/log.h"
#include "base/owned_fd.h"
#include "hub/content_writer.h"
#include "hub/digest.h"
#include "hub/file_lock.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".unflushed";
constexpr uint64_t kMaxMarkBytes = 256;

// Whether the mark exists. `same_boot`: whether it was made during this boot.
bool ReadMark(const fs::path& mark, bool& same_boot) {
  const auto text = ReadFile(mark, kMaxMarkBytes);
  if (!text && text.error().code == ErrorCode::kNotFound) return false;
  const std::string boot = BootIdentity();
  // An incomplete mark counts as made during another boot.
  same_boot = text && !boot.empty() && AsciiTrim(*text) == boot;
  return true;
}

// Returns the reason not to trust the blob, or "" if it is complete and on disk.
std::string ProblemOf(const fs::path& blob, const std::string& etag, bool same_boot) {
  const OwnedFd open(::open(blob.c_str(), O_RDONLY | O_CLOEXEC));
  if (!open) return std::strerror(errno);
  if (!same_boot) {
    if (DigestKindOf(etag) == DigestKind::kNone) return "it has no digest that could be checked";
    const int64_t size = ::lseek(open.get(), 0, SEEK_END);
    LOG_INFO("download",
             "{}: checking {} bytes, which were not seen to reach the disk before the machine was "
             "started anew",
             blob.string(), size);
    const auto whole = ContentWriter(open.get(), size, size, etag).Finish();
    if (!whole) return whole.error().message;
    if (!*whole) return "its content does not match its name";
  }
  if (::fsync(open.get()) != 0 && errno != EROFS && errno != EINVAL) return std::strerror(errno);
  return "";
}

}  // namespace

Status MarkUnflushed(const RepositoryCache& repository, std::string_view etag) {
  const fs::path mark = repository.Blob(etag) += kEnding;
  const OwnedFd open(::open(mark.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!open) return CacheError("create", mark, errno);
  const std::string text = BootIdentity();
  if (::write(open.get(), text.data(), text.size()) != std::ssize(text))
    return CacheError("write", mark, errno != 0 ? errno : ENOSPC);
  if (::fsync(open.get()) != 0) return CacheError("write", mark, errno);
  // The mark's directory entry must reach the disk before the blob's.
  const OwnedFd folder(::open(mark.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || (::fsync(folder.get()) != 0 && errno != EINVAL))
    return CacheError("write", mark.parent_path(), errno);
  return {};
}

Result<bool> SettleBlob(const RepositoryCache& repository, const std::string& etag) {
  const fs::path blob = repository.Blob(etag);
  const fs::path mark = fs::path(blob) += kEnding;
  bool same_boot = false;
  if (!ReadMark(mark, same_boot)) return true;
  std::optional<FileLock> lock = FileLock::TryAcquireExisting(repository.Lock(etag));
  if (!lock && same_boot) return true;
  if (!lock) {
    // A failure to lock is ignored: the cache is then read-only, so no other process writes either.
    auto waited = FileLock::Acquire(repository.Lock(etag), [&] {
      LOG_INFO("download", "waiting for another program that has {} locked", blob.string());
    });
    if (waited) lock = *std::move(waited);
    if (!ReadMark(mark, same_boot)) return true;
  }
  std::error_code error;
  if (fs::exists(blob, error)) {
    const std::string problem = ProblemOf(blob, etag, same_boot);
    if (!problem.empty()) {
      LOG_WARNING("download", "{} is damaged and is removed: {}", blob.string(), problem);
      if (::unlink(blob.c_str()) != 0) return CacheError("remove", blob, errno);
      ::unlink(mark.c_str());
      return false;
    }
  }
  if (::unlink(mark.c_str()) != 0 && errno != ENOENT && !same_boot) {
    LOG_INFO(
        "download",
        "{}: {}; the file that it speaks of is whole, and is checked again at each start until "
        "the mark can be removed",
        mark.string(), std::strerror(errno));
  }
  return true;
}

void ForgetMark(const RepositoryCache& repository, std::string_view etag) {
  // If unlinking fails, the mark has no blob, and the next SettleBlob removes it.
  ::unlink((repository.Blob(etag) += kEnding).c_str());
}

Status SettleBlobs(const RepositoryCache& repository) {
  std::vector<std::string> etags;
  std::error_code error;
  for (fs::directory_iterator entry(repository.folder() / "blobs", error), end;
       !error && entry != end; entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!name.ends_with(kEnding)) continue;
    name.resize(name.size() - kEnding.size());
    etags.push_back(std::move(name));
  }
  for (const std::string& etag : etags) RETURN_IF_ERROR(SettleBlob(repository, etag));
  return {};
}

}  // namespace sluice
