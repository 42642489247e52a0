#include "client/http_client.h"

#include <utility>

#include <fmt/format.h>

#include "client/client_connection.h"
#include "client/event_stream.h"
#include "client/response_parser.h"

namespace sluice {
namespace {

constexpr size_t kMaxBodyBytes = size_t{1} << 30;

// Gives pieces of the answer's body to `take` until it returns false or the body ends.
Status ReadAnswer(ClientConnection& connection, ResponseParser& parser,
                  const std::function<bool(std::string_view)>& take) {
  std::string buffer;
  while (!parser.done()) {
    buffer.clear();
    ASSIGN_OR_RETURN(const bool more, connection.Read(buffer));
    if (!more) return parser.End();
    for (std::string_view bytes = buffer; !bytes.empty() && !parser.done();) {
      ASSIGN_OR_RETURN(const std::string_view piece, parser.Take(bytes));
      if (!piece.empty() && !take(piece)) return {};
    }
  }
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
  return Send(
      Head("GET", path, 0), [](std::string_view) { return true; }, -1);
}

Result<ClientResponse> HttpClient::Post(std::string_view path, std::string_view body) const {
  return PostStream(path, body, [](std::string_view) { return true; });
}

Result<ClientResponse> HttpClient::PostStream(
    std::string_view path, std::string_view body,
    const std::function<bool(std::string_view data)>& on_event, int cancel_fd) const {
  return Send(Head("POST", path, body.size()).append(body), on_event, cancel_fd);
}

Result<ClientResponse> HttpClient::Send(const std::string& request,
                                        const std::function<bool(std::string_view data)>& on_event,
                                        int cancel_fd) const {
  ASSIGN_OR_RETURN(ClientConnection connection, ClientConnection::Open(url_, cancel_fd));
  const Status sent = connection.Write(request);
  if (!sent && sent.error().code != ErrorCode::kUnavailable)
    return tl::unexpected<Error>(sent.error());
  ResponseParser parser;
  EventStream events;
  ClientResponse response;
  const Status read = ReadAnswer(connection, parser, [&](std::string_view piece) {
    if (parser.is_event_stream()) return events.Take(piece, on_event);
    response.body += piece;
    return response.body.size() <= kMaxBodyBytes;
  });
  // A server that takes no more may have said why.
  if (!sent && !parser.in_body()) return tl::unexpected<Error>(sent.error());
  RETURN_IF_ERROR(read);
  if (response.body.size() > kMaxBodyBytes)
    return Fail(ErrorCode::kUnavailable, "the server's answer is no HTTP: its body is too long");
  response.status = parser.status();
  return response;
}

}  // namespace sluice
