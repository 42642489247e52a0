// An incremental parser of HTTP/1.1 responses. A response may arrive in parts of any size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

// Thread safety: one thread at a time.
class ResponseParser {
 public:
  // Removes bytes from the front of `bytes`: the head, or a piece of the body, which is returned as
  // a view into `bytes`. An empty view means that more bytes are needed, or that the answer is
  // complete. kUnavailable if the bytes are not HTTP.
  Result<std::string_view> Take(std::string_view& bytes);
  // Call when the connection has ended. kUnavailable if the answer is incomplete.
  Status End();

  bool started() const { return started_; }
  bool in_body() const { return state_ != State::kHead; }
  bool done() const { return state_ == State::kDone; }
  int status() const { return status_; }
  bool is_event_stream() const { return is_event_stream_; }
  // The status line and the headers, without the empty line; valid once in_body() or done().
  const std::string& head() const { return head_; }
  // Whether the connection can carry another request once the answer is complete.
  bool keep_alive() const { return keep_alive_; }

 private:
  enum class State { kHead, kSized, kToEnd, kChunkSize, kChunk, kChunkEnd, kTrailer, kDone };

  Status ReadHead();
  // Moves a line, without its line end, to line_. Returns false if it is incomplete.
  Result<bool> TakeLine(std::string_view& bytes);

  State state_ = State::kHead;
  bool started_ = false;
  bool line_ended_ = false;
  std::string line_;  // the head while it is incomplete, or the line being read
  std::string head_;
  int status_ = 0;
  bool is_event_stream_ = false;
  bool keep_alive_ = true;
  uint64_t left_ = 0;  // number of bytes left of the body or the chunk
};

}  // namespace sluice
