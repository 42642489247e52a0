// The access log: one line an answered request, as uvicorn writes it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
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

  explicit AccessLog(const ServerConfig& config);
  // Writes what waits, unless the reader of the standard output has stopped.
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // `INFO:     127.0.0.1:52976 - "GET /health HTTP/1.1" 200 OK`
  static std::string Line(const HttpExchangeRecord& record);

  // Must not block: called on an I/O thread.
  void Add(const HttpExchangeRecord& record);

 private:
  void Work();

  const bool disabled_;
  const std::vector<std::string> quiet_paths_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::string> waiting_;
  uint64_t dropped_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace sluice
