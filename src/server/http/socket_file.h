// The file of a unix socket.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"

namespace sluice {

// Makes `path` available for a socket: removes a socket that a killed process has left and on which
// no process listens. kAddressInUse if a process listens on this socket. kInvalidArgument if the
// path is another kind of file, or if it is too long for a socket.
Status RemoveStaleSocket(const std::string& path);

// The file of a unix socket that this process has bound. Removes the file when destroyed, unless
// another file has taken its place.
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
