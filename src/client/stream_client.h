// Many HTTP requests at a time from one thread, their answers read as server-sent events, for load
// generators. An event costs one read and no allocation. Its own loop over epoll, not Asio: that
// reads edge-triggered, so each event costs a second call to the system (docs/dependencies.md).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "client/client_tls.h"
#include "client/url.h"

namespace sluice {

// Seconds of the monotonic clock.
double MonotonicSeconds();

// How an exchange ended.
struct StreamEnd {
  int status = 0;           // of HTTP; 0 where no answer came
  std::string error;        // "" for an answer that came whole, whatever its status
  std::string body;         // of an answer that is no event stream, or whose status is not 200
  std::string unreachable;  // why no connection was made, "" if one was
};

// Receives one answer. `now`: MonotonicSeconds() when the bytes had been read.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;
  // The data of one event; the view dies with the call.
  virtual void OnEvent(double now, std::string_view data) = 0;
  // The last call for this request. May call StreamClient::Post.
  virtual void OnEnd(double now, StreamEnd end) = 0;
};

// Connections are kept and used again; if the server has closed a kept one, the request is sent
// over a new one. Thread safety: one thread.
class StreamClient {
 public:
  struct Options {
    Url url;
    std::shared_ptr<const ClientTls> tls = {};  // of https; null: trusts as the system does
    bool keep_alive = true;                     // false: a new connection for each request
    double timeout_seconds = 6 * 3600;          // of one request
  };
  // kUnavailable if the host has no address, or no file descriptor is left. Does not connect yet.
  static Result<std::unique_ptr<StreamClient>> Create(Options options);
  ~StreamClient();
  StreamClient(const StreamClient&) = delete;
  StreamClient& operator=(const StreamClient&) = delete;

  // Begins a request. `headers` are whole lines with their ends ("A: b\r\n"), besides those that
  // HTTP and a body of JSON need. `handler` must live until its OnEnd, and is called from Poll
  // only.
  void Get(std::string_view path, std::string_view headers, StreamHandler& handler);
  void Post(std::string_view path, std::string_view headers, std::string_view body,
            StreamHandler& handler);
  // Waits until something has arrived, or until `until` (MonotonicSeconds; infinity: no limit), and
  // handles it; may return sooner. False once `cancel_fd` (-1: none) is readable.
  bool Poll(double until, int cancel_fd);

  // Requests that have not ended.
  size_t num_running() const;
  // How many files, and so connections, this process may have open at a time; raised as far as the
  // system lets it.
  static size_t MaxConnections();

 private:
  class Loop;
  explicit StreamClient(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace sluice
