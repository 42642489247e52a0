#include "base/file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/owned_fd.h"

namespace sluice {
namespace {

tl::unexpected<Error> SystemError(const std::filesystem::path& path, const char* what) {
  const int number = errno;
  std::error_code ignored;
  const std::filesystem::path target = std::filesystem::read_symlink(path, ignored);
  if (number == ENOENT && !target.empty()) {
    // A broken link is not kNotFound, because it shows that a file with this name was meant to
    // exist.
    return Fail(ErrorCode::kInvalidData,
                fmt::format("cannot {} {}: it is a link to {}, which does not exist; download or "
                            "link it again",
                            what, path.string(), target.string()),
                path.string());
  }
  const ErrorCode code = number == ENOENT ? ErrorCode::kNotFound : ErrorCode::kInvalidData;
  return Fail(code, fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(number)),
              path.string());
}

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "something else";
}

// Opens a regular file and returns its size in `size`.
Status OpenRegular(const std::filesystem::path& path, OwnedFd& file, uint64_t& size) {
  // Without O_NONBLOCK, opening a pipe would wait until another process opens its other end,
  // perhaps forever. The flag has no effect on regular files.
  file = OwnedFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return SystemError(path, "open");
  struct stat info;
  if (::fstat(file.get(), &info) != 0) return SystemError(path, "inspect");
  if (!S_ISREG(info.st_mode)) {
    return Fail(
        ErrorCode::kInvalidData,
        fmt::format("{} must be a regular file, found {}", path.string(), KindOf(info.st_mode)),
        path.string());
  }
  size = static_cast<uint64_t>(info.st_size);
  return {};
}

}  // namespace

Result<std::string> ReadFile(const std::filesystem::path& path, uint64_t max_bytes) {
  OwnedFd open;
  uint64_t size = 0;
  RETURN_IF_ERROR(OpenRegular(path, open, size));
  if (size > max_bytes) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("{} has {} bytes, at most {} are read", path.string(), size, max_bytes),
                path.string());
  }
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(open.get(), text.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError(path, "read");
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

Result<MappedFile> MappedFile::Open(const std::filesystem::path& path) {
  OwnedFd open;
  uint64_t size = 0;
  RETURN_IF_ERROR(OpenRegular(path, open, size));
  MappedFile file;
  file.size_ = size;
  if (size == 0) return file;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, open.get(), 0);
  if (data == MAP_FAILED) {
    file.size_ = 0;
    return SystemError(path, "map");
  }
  file.data_ = static_cast<const std::byte*>(data);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::Release(size_t offset, size_t size) const {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = (offset + size) / page * page;
  if (begin < end) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

void MappedFile::ReadSparsely() const {
  if (size_ > 0) ::madvise(const_cast<std::byte*>(data_), size_, MADV_RANDOM);
}

void MappedFile::Fetch(size_t offset, size_t size) const {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = offset / page * page;
  if (size > 0)
    ::madvise(const_cast<std::byte*>(data_) + begin, offset + size - begin, MADV_WILLNEED);
}

}  // namespace sluice
