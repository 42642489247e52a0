// One connection, and what all connections share. Internal to this folder: it includes Asio.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "server/http/http_server.h"
#include "server/http/http_types.h"
#include "server/server_config.h"

namespace sluice {

namespace asio = boost::asio;

// Reads requests and writes their answers, one at a time.
// Thread safety: all methods are called on the connection's I/O thread.
class HttpConnection {
 public:
  virtual ~HttpConnection() = default;

  virtual void Start() = 0;
  // Closes the connection if a timeout has passed.
  virtual void CheckDeadline(std::chrono::steady_clock::time_point now) = 0;
  virtual void CloseIfIdle() = 0;
  // Tells the handler of a request in progress that its client has gone.
  virtual void Close() = 0;
};

// One thread, its event loop and its connections, which only that thread uses.
struct HttpIoThread {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  asio::steady_timer tick{context};
  bool ticking = false;
  std::unordered_set<std::shared_ptr<HttpConnection>> connections;
  std::thread thread;
};

// Bytes that count in HttpCore::held_bytes during the lifetime of this object.
// Thread safety: one thread at a time.
class HeldBytes {
 public:
  explicit HeldBytes(std::atomic<uint64_t>* total) : total_(total) {}
  HeldBytes(HeldBytes&& other) noexcept
      : total_(other.total_), bytes_(std::exchange(other.bytes_, 0)) {}
  HeldBytes& operator=(HeldBytes&&) = delete;
  ~HeldBytes() { Set(0); }

  void Set(uint64_t bytes) {
    *total_ += bytes - bytes_;  // modulo 2^64
    bytes_ = bytes;
  }

 private:
  std::atomic<uint64_t>* const total_;
  uint64_t bytes_ = 0;
};

// What connections share. Writers keep it alive through their connection, even after the server is
// destroyed.
struct HttpCore {
  ServerConfig config;
  HttpHandler* handler = nullptr;
  HttpServer::RecordFunction record;
  std::atomic<int64_t> num_connections{0};
  std::atomic<int64_t> num_exchanges{0};
  std::atomic<uint64_t> held_bytes{0};  // see ServerConfig::max_held_bytes
  std::atomic<bool> draining{false}, stopped{false};
  std::vector<std::unique_ptr<HttpIoThread>> threads;

  bool IsFull(uint64_t more_bytes = 0) const {
    return held_bytes + more_bytes > std::max(config.max_held_bytes, 2 * config.max_body_bytes);
  }
};

std::shared_ptr<HttpConnection> MakeHttpConnection(std::shared_ptr<HttpCore> core, HttpIoThread* io,
                                                   asio::ip::tcp::socket socket);

}  // namespace sluice
