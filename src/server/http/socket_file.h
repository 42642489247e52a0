// The file of a unix socket.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"

namespace sluice {

// Makes room at `path` for a socket: removes one that nobody listens at, which a process that was
// killed has left. kAddressInUse if somebody listens there, kInvalidArgument if something else is
// there or the path is too long for a socket.
Status RemoveStaleSocket(const std::string& path);

// The file of a socket that this process has bound. Removes it when destroyed, unless another one
// has taken its place.
class SocketFile {
 public:
  explicit SocketFile(std::string path);
  ~SocketFile();
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;

 private:
  const std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace sluice
