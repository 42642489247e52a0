// Sends many HTTP requests concurrently from one thread and reads the answers as server-sent
// events, for load generators. An event costs one read and no allocation. Uses its own epoll loop,
// because Asio is edge-triggered: each event would cost a second system call
// (docs/dependencies.md).
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

// Returns the time of the monotonic clock in seconds.
double MonotonicSeconds();

// The outcome of an exchange.
struct StreamEnd {
  int status = 0;           // HTTP status; 0 if there was no answer
  std::string error;        // "" if the answer is complete, with any status
  std::string body;         // body of an answer that is not an event stream, or whose status is not
                            // 200
  std::string unreachable;  // why no connection was made; "" if one was made
};

// Receives one answer. `now`: MonotonicSeconds() after the bytes were read. If a callback throws,
// the request ends with the exception's message as its error; an exception of OnEnd is only logged.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;
  // Returns whether the raw answer is passed to OnHead and OnBytes as it arrives, instead of events
  // to OnEvent. StreamEnd then has no body.
  virtual bool wants_bytes() const { return false; }
  // `head`: the status line and the headers. Called before the first OnBytes, or before OnEnd of an
  // answer without a body; the views are valid only during the calls.
  virtual void OnHead(int /*status*/, std::string_view /*head*/) {}
  virtual void OnBytes(std::string_view /*bytes*/) {}
  // Called with the data of one event; the view is valid only during the call.
  virtual void OnEvent(double now, std::string_view data) = 0;
  // The last call for this request. May call StreamClient::Post.
  virtual void OnEnd(double now, StreamEnd end) = 0;
};

// Keeps up to 64 idle connections for reuse. If the server has closed an idle connection, sends the
// request over a new one. Thread safety: one thread.
class StreamClient {
 public:
  struct Options {
    Url url;
    std::shared_ptr<const ClientTls> tls = {};  // for https; null: trusts the system's issuers
    bool keep_alive = true;                     // false: opens a new connection for each request
    double timeout_seconds = 6 * 3600;          // time limit for each request
  };
  // kUnavailable if the host has no address, or if no file descriptor is left. Does not connect
  // yet.
  static Result<std::unique_ptr<StreamClient>> Create(Options options);
  ~StreamClient();
  StreamClient(const StreamClient&) = delete;
  StreamClient& operator=(const StreamClient&) = delete;

  // Begins a request. `headers` are whole lines with their line ends ("A: b\r\n"), in addition to
  // those that HTTP and a JSON body need. Only Poll calls `handler`, which must live until its
  // OnEnd.
  void Get(std::string_view path, std::string_view headers, StreamHandler& handler);
  void Post(std::string_view path, std::string_view headers, std::string_view body,
            StreamHandler& handler);
  // Begins a request with any method for a handler that receives the response as bytes. `headers`:
  // as for Get, including the headers of the body.
  void Forward(std::string_view method, std::string_view path, std::string_view headers,
               std::string_view body, StreamHandler& handler);
  // Ends the handler's request and closes its connection. OnEnd is not called. Does nothing if the
  // request has ended. REQUIRES: not called by a handler.
  void Cancel(const StreamHandler& handler);
  // Stops or continues reading the answer of the handler's request. A handler may call it; bytes
  // that were already read are still passed on. Does nothing if the request has ended.
  void Pause(const StreamHandler& handler, bool paused);
  // Waits for data until `until` (MonotonicSeconds; infinity: no limit) and handles it; may return
  // earlier. Returns false once `cancel_fd` (-1: none) is readable.
  bool Poll(double until, int cancel_fd);

  // Number of requests that have not ended.
  size_t num_running() const;
  // Number of connections that this process may have open at a time. Raises the limit of open files
  // as far as the system allows.
  static size_t MaxConnections();

 private:
  class Loop;
  explicit StreamClient(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace sluice
