#include "client/http_client.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "client/client_connection.h"
#include "client/event_stream.h"

namespace sluice {
namespace {

constexpr size_t kMaxHeadBytes = 1 << 20;
constexpr size_t kMaxBodyBytes = size_t{1} << 30;

tl::unexpected<Error> Broken(std::string_view what) {
  return Fail(ErrorCode::kUnavailable, fmt::format("the server's answer is no HTTP: {}", what));
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

// Reads one answer from a connection: first the head, then the body piece by piece.
class AnswerReader {
 public:
  AnswerReader(ClientConnection& connection, int cancel_fd)
      : connection_(connection), cancel_fd_(cancel_fd) {}

  Result<ClientResponse> ReadHead() {
    size_t end;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
      if (buffer_.size() > kMaxHeadBytes) return Broken("its head is too long");
      ASSIGN_OR_RETURN(const bool more, connection_.Read(buffer_, cancel_fd_));
      if (!more) return Broken("it ends within its head");
    }
    ClientResponse response;
    std::string_view head = std::string_view(buffer_).substr(0, end);
    const size_t space = head.find(' ');
    if (!head.starts_with("HTTP/1.") || space == std::string_view::npos)
      return Broken("no status line");
    std::from_chars(head.data() + space + 1, head.data() + std::min(head.size(), space + 4),
                    response.status);
    size_t line = head.find("\r\n");
    while (line != std::string_view::npos) {
      head.remove_prefix(line + 2);
      line = head.find("\r\n");
      const std::string_view text = head.substr(0, line);
      const size_t colon = text.find(':');
      if (colon != std::string_view::npos) {
        response.headers[Lower(text.substr(0, colon))] = Trim(text.substr(colon + 1));
      }
    }
    buffer_.erase(0, end + 4);
    if (const auto found = response.headers.find("transfer-encoding");
        found != response.headers.end()) {
      chunked_ = Lower(found->second).find("chunked") != std::string::npos;
    }
    if (const auto found = response.headers.find("content-length");
        found != response.headers.end() && !chunked_) {
      uint64_t length = 0;
      std::from_chars(found->second.data(), found->second.data() + found->second.size(), length);
      left_ = length;
    }
    return response;
  }

  // Calls `take` with pieces of the body until it returns false or the body ends.
  Status ReadBody(const std::function<bool(std::string_view)>& take) {
    while (true) {
      if (chunked_ && left_.value_or(0) == 0) {
        ASSIGN_OR_RETURN(const bool last, ReadChunkHead());
        if (last) return {};
      }
      if (left_ && *left_ == 0) return {};
      if (buffer_.empty()) {
        ASSIGN_OR_RETURN(const bool more, connection_.Read(buffer_, cancel_fd_));
        if (!more && left_) return Broken("it ends within its body");
        if (!more) return {};
      }
      const size_t size = left_ ? std::min<uint64_t>(*left_, buffer_.size()) : buffer_.size();
      if (left_) *left_ -= size;
      const bool go_on = take(std::string_view(buffer_).substr(0, size));
      buffer_.erase(0, size);
      if (!go_on) return {};
    }
  }

 private:
  // True for the chunk that ends the body.
  Result<bool> ReadChunkHead() {
    if (in_body_) {
      ASSIGN_OR_RETURN(const std::string end, ReadLine());
      if (!end.empty()) return Broken("a chunk is longer than it says");
    }
    in_body_ = true;
    ASSIGN_OR_RETURN(const std::string line, ReadLine());
    uint64_t size = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), size, 16);
    if (error != std::errc() || end == line.data()) return Broken("a chunk without a size");
    left_ = size;
    return size == 0;
  }

  Result<std::string> ReadLine() {
    size_t end;
    while ((end = buffer_.find("\r\n")) == std::string::npos) {
      if (buffer_.size() > kMaxHeadBytes) return Broken("a line is too long");
      ASSIGN_OR_RETURN(const bool more, connection_.Read(buffer_, cancel_fd_));
      if (!more) return Broken("it ends within its body");
    }
    std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 2);
    return line;
  }

  ClientConnection& connection_;
  const int cancel_fd_;
  std::string buffer_;
  bool chunked_ = false;
  bool in_body_ = false;
  std::optional<uint64_t>
      left_;  // bytes of the body or of the current chunk; none: until the connection ends
};

Status ReadWhole(AnswerReader& reader, ClientResponse& response) {
  bool too_long = false;
  RETURN_IF_ERROR(reader.ReadBody([&](std::string_view piece) {
    response.body += piece;
    too_long = response.body.size() > kMaxBodyBytes;
    return !too_long;
  }));
  if (too_long) return Broken("its body is too long");
  return {};
}

}  // namespace

HttpClient::HttpClient(Url url, std::map<std::string, std::string> headers)
    : url_(std::move(url)), headers_(std::move(headers)) {}

std::string HttpClient::Head(std::string_view method, std::string_view path,
                             size_t body_size) const {
  const bool v6 = url_.host.find(':') != std::string::npos;
  std::string head =
      fmt::format("{} {}{} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\nAccept: */*\r\n", method,
                  url_.path, path, v6 ? "[" + url_.host + "]" : url_.host, url_.port);
  for (const auto& [name, value] : headers_) head += fmt::format("{}: {}\r\n", name, value);
  if (method != "GET")
    head += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body_size);
  return head + "\r\n";
}

Result<ClientResponse> HttpClient::Get(std::string_view path) const {
  ASSIGN_OR_RETURN(ClientConnection connection, ClientConnection::Open(url_));
  RETURN_IF_ERROR(connection.Write(Head("GET", path, 0)));
  AnswerReader reader(connection, -1);
  ASSIGN_OR_RETURN(ClientResponse response, reader.ReadHead());
  RETURN_IF_ERROR(ReadWhole(reader, response));
  return response;
}

Result<ClientResponse> HttpClient::Post(std::string_view path, std::string_view body) const {
  return PostStream(path, body, [](std::string_view) { return true; });
}

Result<ClientResponse> HttpClient::PostStream(
    std::string_view path, std::string_view body,
    const std::function<bool(std::string_view data)>& on_event, int cancel_fd) const {
  ASSIGN_OR_RETURN(ClientConnection connection, ClientConnection::Open(url_));
  RETURN_IF_ERROR(connection.Write(Head("POST", path, body.size()).append(body)));
  AnswerReader reader(connection, cancel_fd);
  ASSIGN_OR_RETURN(ClientResponse response, reader.ReadHead());
  if (response.headers["content-type"].find("text/event-stream") == std::string::npos) {
    RETURN_IF_ERROR(ReadWhole(reader, response));
    return response;
  }
  EventStream events;
  RETURN_IF_ERROR(
      reader.ReadBody([&](std::string_view piece) { return events.Take(piece, on_event); }));
  return response;
}

}  // namespace sluice
