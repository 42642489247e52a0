// The access log: one line per answered request, as uvicorn writes it.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/http/http_types.h"
#include "server/server_config.h"

namespace sluice {

// Writes lines to the standard output from a thread of its own, so that a slow terminal or a full
// pipe blocks nothing else. At most kMaxWaiting lines are queued; further ones are dropped, and a
// line reports their number once there is room. Thread safety: all methods may be called from any
// thread.
class AccessLog {
 public:
  static constexpr size_t kMaxWaiting = 8192;

  // `file` is an open descriptor, which is not closed.
  explicit AccessLog(const ServerConfig& config, int file = STDOUT_FILENO);
  // Writes what is queued, but waits at most a second for a blocked standard output.
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // `INFO:     127.0.0.1:52976 - "GET /health HTTP/1.1" 200 OK`, without what is secret in the
  // target.
  std::string Line(const HttpExchangeRecord& record) const;

  // Must not block: called on an I/O thread.
  void Add(const HttpExchangeRecord& record);

 private:
  struct Queue;
  static void Work(const std::shared_ptr<Queue>& queue, int file);

  const bool disabled_;
  const std::vector<std::string> quiet_paths_;
  const std::vector<std::string> api_keys_;
  // Shared with the thread, which outlives this object if its output is blocked.
  const std::shared_ptr<Queue> queue_;
  std::thread thread_;
};

}  // namespace sluice
