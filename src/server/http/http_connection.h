// One connection, and the data that all connections share. Internal to this folder, because it
// includes Asio.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <unordered_set>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "server/http/http_server.h"
#include "server/http/http_stream.h"
#include "server/http/http_types.h"
#include "server/http/tls_context.h"
#include "server/server_config.h"

namespace sluice {

namespace asio = boost::asio;

// Reads requests and writes their answers, one at a time. Thread safety: all methods are called on
// the connection's I/O thread.
class HttpConnection {
 public:
  virtual ~HttpConnection() = default;

  virtual void Start() = 0;
  // Closes the connection if a timeout has passed.
  virtual void CheckDeadline(std::chrono::steady_clock::time_point now) = 0;
  virtual void CloseIfIdle() = 0;
  // Closes the connection. Tells the handler of a request in progress that its client has
  // disconnected.
  virtual void Close() = 0;
};

// A thread, its event loop, and the connections that only this thread uses.
struct HttpIoThread {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  asio::steady_timer tick{context};
  bool ticking = false;
  std::unordered_set<std::shared_ptr<HttpConnection>> connections;
  std::thread thread;
};

// Data that all connections share. Writers keep it alive through their connection, even after the
// server is destroyed.
struct HttpCore {
  ServerConfig config;
  std::shared_ptr<RequestMemory> memory;
  std::unique_ptr<TlsCertificates> certificates;  // null without TLS
  HttpHandler* handler = nullptr;
  HttpServer::RecordFunction record;
  std::atomic<int64_t> num_connections{0};
  std::atomic<int64_t> num_exchanges{0};
  // leaving: answers announce that their connection will be closed.
  std::atomic<bool> leaving{false}, draining{false}, stopped{false};
  std::vector<std::unique_ptr<HttpIoThread>> threads;
};

// Throws std::bad_alloc if memory is refused.
std::shared_ptr<HttpConnection> MakeHttpConnection(std::shared_ptr<HttpCore> core, HttpIoThread* io,
                                                   HttpStream::Socket socket);

}  // namespace sluice
