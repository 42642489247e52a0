// The access log: one line per answered request.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log_format.h"
#include "server/api/guard/api_keys.h"
#include "server/http/http_types.h"
#include "server/server_config.h"

namespace sluice {

// Writes lines from its own thread, so that a slow terminal or a full pipe blocks nothing else.
// Queues at most kMaxWaiting lines and drops further ones. Once there is room again, a log line
// reports how many were dropped. Thread safety: all methods may be called from any thread.
class AccessLog {
 public:
  static constexpr size_t kMaxWaiting = 8192;

  // `file` is an open descriptor, which is not closed.
  AccessLog(const ServerConfig& config, std::shared_ptr<const ApiKeys> keys, int file = LogFile());
  // Writes the queued lines, but waits at most a second if the output is blocked.
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // Returns the line in the log's format, with the fields of the answer. Secrets in the target are
  // masked:
  //
  //   2026-11-21T07:11:03.512Z INFO access POST /v1/completions 200 client=127.0.0.1:52976
  //   seconds=0.120301 request_id=cmpl-1 prompt_tokens=5 completion_tokens=7 cached_tokens=0
  //   finish_reason=stop
  //
  // In another program's text style, the line has uvicorn's format, for tools that search for it.
  // If the request failed, a second line states the reason:
  //
  //   INFO:     127.0.0.1:52976 - "GET /health HTTP/1.1" 200 OK
  std::string Line(const HttpExchangeRecord& record) const;

  // Queues the line of an exchange. Never blocks, because an I/O thread calls it.
  void Add(const HttpExchangeRecord& record);

 private:
  struct Queue;
  static void Work(const std::shared_ptr<Queue>& queue, int file);

  const bool disabled_;
  const std::vector<std::string> quiet_paths_;
  const std::shared_ptr<const ApiKeys> keys_;
  // Shared with the thread, which outlives this object if its output is blocked.
  const std::shared_ptr<Queue> queue_;
  std::thread thread_;
};

}  // namespace sluice
