#include "client/response_parser.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "base/ascii.h"

namespace sluice {
namespace {

constexpr size_t kMaxHeadBytes = 1 << 20;

tl::unexpected<Error> NoHttp(std::string_view what) {
  return Fail(ErrorCode::kUnavailable, fmt::format("the server's answer is not HTTP: {}", what));
}

bool EqualNoCase(std::string_view a, std::string_view b) {
  return AsciiLower(a) == AsciiLower(b);
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

Result<bool> ResponseParser::TakeLine(std::string_view& bytes) {
  if (line_ended_) line_.clear();
  const size_t end = bytes.find('\n');
  line_ended_ = end != std::string_view::npos;
  line_ += bytes.substr(0, end);
  bytes.remove_prefix(line_ended_ ? end + 1 : bytes.size());
  if (line_.size() > kMaxHeadBytes) return NoHttp("a line is too long");
  if (line_ended_ && line_.ends_with('\r')) line_.pop_back();
  return line_ended_;
}

Result<std::string_view> ResponseParser::Take(std::string_view& bytes) {
  while (!bytes.empty() && state_ != State::kDone) {
    switch (state_) {
      case State::kHead: {
        started_ = true;
        // The "\r\n\r\n" at the end of the head may be split between two pieces.
        const size_t old = line_.size();
        line_ += bytes;
        const size_t end = line_.find("\r\n\r\n", old < 3 ? 0 : old - 3);
        if (end == std::string::npos) {
          if (line_.size() > kMaxHeadBytes) return NoHttp("its head is too long");
          bytes = {};
          return std::string_view();
        }
        bytes.remove_prefix(end + 4 - old);
        line_.resize(end);
        RETURN_IF_ERROR(ReadHead());
        head_.swap(line_);
        line_.clear();
        break;
      }
      case State::kToEnd: {
        const std::string_view piece = bytes;
        bytes = {};
        return piece;
      }
      case State::kSized:
      case State::kChunk: {
        const std::string_view piece = bytes.substr(0, std::min<uint64_t>(left_, bytes.size()));
        bytes.remove_prefix(piece.size());
        left_ -= piece.size();
        if (left_ == 0) state_ = state_ == State::kSized ? State::kDone : State::kChunkEnd;
        return piece;
      }
      case State::kChunkEnd: {
        ASSIGN_OR_RETURN(const bool whole, TakeLine(bytes));
        if (whole && !line_.empty()) return NoHttp("a chunk is longer than its stated size");
        if (whole) state_ = State::kChunkSize;
        break;
      }
      case State::kChunkSize: {
        ASSIGN_OR_RETURN(const bool whole, TakeLine(bytes));
        if (!whole) break;
        const auto [end, error] =
            std::from_chars(line_.data(), line_.data() + line_.size(), left_, 16);
        if (error != std::errc() || end == line_.data()) return NoHttp("a chunk without a size");
        state_ = left_ == 0 ? State::kTrailer : State::kChunk;
        break;
      }
      case State::kTrailer: {
        ASSIGN_OR_RETURN(const bool whole, TakeLine(bytes));
        if (whole && line_.empty()) state_ = State::kDone;
        break;
      }
      case State::kDone: break;
    }
  }
  return std::string_view();
}

Status ResponseParser::ReadHead() {
  std::string_view head = line_;
  const size_t space = head.find(' ');
  if (!head.starts_with("HTTP/1.") || space == std::string_view::npos)
    return NoHttp("no status line");
  status_ = 0;
  std::from_chars(head.data() + space + 1, head.data() + std::min(head.size(), space + 4), status_);
  keep_alive_ = head.starts_with("HTTP/1.1");
  std::string_view coding;  // the transfer coding
  std::optional<uint64_t> length;
  for (size_t line = head.find("\r\n"); line != std::string_view::npos; line = head.find("\r\n")) {
    head.remove_prefix(line + 2);
    const std::string_view text = head.substr(0, head.find("\r\n"));
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, colon), value = Trimmed(text.substr(colon + 1));
    if (EqualNoCase(name, "connection")) {
      if (EqualNoCase(value, "close")) keep_alive_ = false;
    } else if (EqualNoCase(name, "transfer-encoding")) {
      if (!EqualNoCase(value, "chunked") || !coding.empty())
        return NoHttp(fmt::format("transfer-encoding '{}', expected only chunked", value));
      coding = value;
    } else if (EqualNoCase(name, "content-type")) {
      is_event_stream_ =
          value.size() >= 17 && EqualNoCase(value.substr(0, 17), "text/event-stream");
    } else if (EqualNoCase(name, "content-length")) {
      uint64_t number = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
      if (error != std::errc() || end != value.data() + value.size())
        return NoHttp(fmt::format("content-length '{}'", value));
      length = number;
    }
  }
  if (status_ >= 100 && status_ < 200) {
    state_ = State::kHead;  // an interim (1xx) response; the final one follows
  } else if (status_ == 204 || status_ == 304) {
    state_ = State::kDone;  // has no body, even if the head contains a length
  } else if (!coding.empty()) {
    state_ = State::kChunkSize;
  } else if (length) {
    left_ = *length;
    state_ = left_ == 0 ? State::kDone : State::kSized;
  } else {
    keep_alive_ = false;
    state_ = State::kToEnd;
  }
  return {};
}

Status ResponseParser::End() {
  keep_alive_ = false;
  if (state_ == State::kToEnd) state_ = State::kDone;
  if (state_ == State::kDone) return {};
  if (!started_)
    return Fail(ErrorCode::kUnavailable, "the server closed the connection without an answer");
  // A TLS alert, which servers send to clients that do not use TLS.
  if (state_ == State::kHead && line_.starts_with("\x15\x03"))
    return Fail(ErrorCode::kUnavailable, "the server uses TLS: write https:// in its address");
  return Fail(ErrorCode::kUnavailable,
              "the server ended the connection in the middle of its answer");
}

}  // namespace sluice
