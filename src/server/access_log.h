// The access log: one line an answered request, as uvicorn writes it.
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
// pipe holds nothing up. At most kMaxWaiting lines wait; further ones are dropped, and how many is
// told once there is room again. Thread safety: all methods may be called from any thread.
class AccessLog {
 public:
  static constexpr size_t kMaxWaiting = 8192;

  // `file` is an open descriptor and stays so.
  explicit AccessLog(const ServerConfig& config, int file = STDOUT_FILENO);
  // Writes what waits, but waits no longer than a second for a standard output that takes nothing.
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // `INFO:     127.0.0.1:52976 - "GET /health HTTP/1.1" 200 OK`
  static std::string Line(const HttpExchangeRecord& record);

  // Must not block: called on an I/O thread.
  void Add(const HttpExchangeRecord& record);

 private:
  struct Queue;
  static void Work(const std::shared_ptr<Queue>& queue, int file);

  const bool disabled_;
  const std::vector<std::string> quiet_paths_;
  // Shared with the thread, which outlives this object where its output is stuck.
  const std::shared_ptr<Queue> queue_;
  std::thread thread_;
};

}  // namespace sluice
