#include "server/http/response_head.h"

#include <ctime>

#include <fmt/format.h>

#include "base/append_format.h"

namespace sluice {
namespace {

std::string DateNow() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[40];
  return std::string(text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts));
}

}  // namespace

std::string ResponseHead(const HttpResponse& response, const std::vector<HttpHeader>& common,
                         std::string_view framing, bool close) {
  std::string out;
  AppendFormat(out, "HTTP/1.1 {} {}\r\ndate: {}\r\nserver: sluice\r\n{}", response.status,
               HttpReason(response.status), DateNow(), framing);
  if (!response.content_type.empty())
    AppendFormat(out, "content-type: {}\r\n", response.content_type);
  for (const std::vector<HttpHeader>* headers : {&response.headers, &common}) {
    for (const HttpHeader& header : *headers)
      AppendFormat(out, "{}: {}\r\n", header.name, header.value);
  }
  if (close) out += "connection: close\r\n";
  out += "\r\n";
  return out;
}

}  // namespace sluice
