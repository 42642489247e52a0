// HTTP requests, responses and handlers, independent of the library that implements HTTP.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/request_memory.h"

namespace sluice {

struct HttpHeader {
  std::string name;  // in lower case
  std::string value;
};

struct HttpRequest {
  std::string method;  // for example "GET"
  std::string target;  // the request target as sent
  std::string path;    // path of the target: percent-decoded, without the query
  std::string query;   // the target's part after '?', as sent
  std::vector<HttpHeader> headers;
  std::string body;
  // The memory that this request holds, including its body; null if memory is not limited. It is
  // returned when the request's ResponseWriter is destroyed. Used by the thread that works on the
  // request.
  std::shared_ptr<MemoryLease> memory;
  std::string client;  // for example "127.0.0.1:52976"
  std::string host;    // from the Host header, else the local address

  // Returns the first header with this name (in lower case), or null.
  const std::string* Header(std::string_view name) const {
    for (const HttpHeader& header : headers) {
      if (header.name == name) return &header.value;
    }
    return nullptr;
  }
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";  // "": no content-type header
  std::string body;
  // Headers besides date, server, content-length, content-type and connection.
  std::vector<HttpHeader> headers;
};

// Facts about an answer, for the access log.
struct AnswerNotes {
  std::string request_id;
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
  std::string finish_reason;  // joined with commas if there are several choices
};

// Answers one request: either Send() once, or StartStream(), any number of WriteChunk() and
// EndStream(). If destroyed before the answer is complete, answers 500 or cuts off the stream.
// Thread safety: every method may be called from any thread, one call at a time. Calls after the
// client has disconnected have no effect.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;

  virtual void Send(HttpResponse response) = 0;

  // `response.body` is ignored.
  virtual void StartStream(HttpResponse response) = 0;
  virtual void WriteChunk(std::string_view data) = 0;
  virtual void EndStream() = 0;

  // Adds notes to the access log. Call before the answer is complete.
  virtual void Describe(AnswerNotes) {}  // NOLINT(performance-unnecessary-value-param)
  // Calls `change` to correct the notes of Describe(), unless the client has disconnected. `change`
  // must not block.
  virtual void CorrectNotes(const std::function<void(AnswerNotes&)>& /*change*/) {}

  // Whether so much data is queued that the caller should wait for `on_writable`.
  virtual bool backlogged() const = 0;
  virtual bool closed() const = 0;

  // `on_closed`: the client disconnected before the answer was complete. Called at most once, and
  // immediately if that has already happened. `on_writable`: see backlogged(). Both are called on
  // an I/O thread and must not block.
  virtual void SetCallbacks(std::function<void()> on_closed, std::function<void()> on_writable) = 0;
};

// Answers requests. Thread safety: several I/O threads call it at a time; it must not block them.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Called before the body is read. Returning a response ends the request, for example if a key is
  // missing.
  virtual std::optional<HttpResponse> CheckHead(const HttpRequest& head) = 0;
  virtual void Handle(HttpRequest request, std::shared_ptr<ResponseWriter> writer) = 0;
  // Returns the JSON body of an error response that the connection itself sends. `target`: the
  // request's target; "" if not known yet. The default is OpenAI's shape.
  virtual std::string ErrorBody(std::string_view target, int status, std::string_view type,
                                std::string_view message) const;
  // Returns headers that every answer to this request has (CORS, request id).
  virtual std::vector<HttpHeader> CommonHeaders(const HttpRequest& request, int status) = 0;
};

// One answered request, for the access log and the metrics.
struct HttpExchangeRecord {
  std::string_view client, method, target, path;
  std::string_view version;     // for example "1.1"
  int status = 0;               // 499: client disconnected before any answer; 503: server ended
  uint64_t request_bytes = 0;   // size of the body
  uint64_t response_bytes = 0;  // size of the body
  double seconds = 0;
  std::string_view request_id;         // from the header X-Request-Id; "" if absent
  std::string_view error_body;         // beginning of the body, if the status is >= 400
  const AnswerNotes* notes = nullptr;  // null if Describe() was not called
};

const char* HttpReason(int status);
// Decodes "%20" to " " and so on. A '%' without two hexadecimal digits stays.
std::string PercentDecode(std::string_view text);
// Percent-encodes bytes that would break a log line or a header.
std::string PercentEncodeUnsafe(std::string_view text);

}  // namespace sluice
