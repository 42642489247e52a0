#include "server/http/socket_file.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace sluice {
namespace {

// Whether no process listens. Also false if this is unknown, for example for a socket that this
// user may not write.
bool NobodyListens(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(static_cast<char*>(address.sun_path), path.data(), path.size());
  const bool refused = fd >= 0 &&
                       connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 &&
                       errno == ECONNREFUSED;
  if (fd >= 0) close(fd);
  return refused;
}

}  // namespace

Status RemoveStaleSocket(const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--uds {}: expected a path of at most {} bytes, found {}", path,
                            sizeof(sockaddr_un::sun_path) - 1, path.size()),
                "uds");
  }
  struct stat about {};
  if (lstat(path.c_str(), &about) != 0) return {};
  if (!S_ISSOCK(about.st_mode)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--uds {}: expected a path without a file, found a file that is not a socket",
                    path),
        "uds");
  }
  if (!NobodyListens(path)) {
    return Fail(ErrorCode::kAddressInUse,
                fmt::format("--uds {} is already in use; stop the program that listens there or "
                            "choose another path",
                            path),
                "uds");
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--uds {}: the socket of a server that has ended cannot be removed: {}",
                            path, std::strerror(errno)),
                "uds");
  }
  return {};
}

SocketFile::SocketFile(std::string path) : path_(std::move(path)) {
  struct stat about {};
  if (lstat(path_.c_str(), &about) != 0) return;
  device_ = about.st_dev;
  inode_ = about.st_ino;
}

SocketFile::~SocketFile() {
  struct stat about {};
  if (lstat(path_.c_str(), &about) == 0 && about.st_dev == device_ && about.st_ino == inode_)
    unlink(path_.c_str());
}

}  // namespace sluice
