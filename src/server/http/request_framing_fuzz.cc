// Fuzz target: reads arbitrary bytes as the head of a request. If FindHeadFault finds nothing, a
// second check of the fields must confirm that the head determines the request's end and host
// unambiguously.
#include <algorithm>
#include <string>

#include "base/fuzz_input.h"
#include "server/http/request_framing.h"
#include "server/http/request_parser.h"

namespace {

using namespace sluice;

size_t Count(const std::vector<HttpHeader>& fields, std::string_view name) {
  return static_cast<size_t>(std::count_if(fields.begin(), fields.end(),
                                           [&](const HttpHeader& f) { return f.name == name; }));
}

std::string LowerWithoutBlanks(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\t'; });
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

void CheckHead(const std::vector<HttpHeader>& fields, int version) {
  const std::optional<HeadFault> fault = FindHeadFault(fields, version);
  if (fault) {
    fuzz::Require(fault->status == 400 || fault->status == 415 || fault->status == 501);
    return;
  }
  const size_t hosts = Count(fields, "host");
  fuzz::Require(hosts == 1 || (hosts == 0 && version < 11));
  const size_t encodings = Count(fields, "transfer-encoding");
  fuzz::Require(encodings <= 1);
  for (const HttpHeader& field : fields) {
    if (field.name == "host") {
      fuzz::Require(field.value.find_first_of("/?#@\\\r\n") == std::string::npos);
    } else if (field.name == "transfer-encoding") {
      fuzz::Require(version >= 11 && Count(fields, "content-length") == 0 &&
                    LowerWithoutBlanks(field.value) == "chunked");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = fuzz::Text(data, size);
  namespace http = boost::beast::http;
  HttpRequestParser parser;
  parser.header_limit(64 << 10);
  boost::system::error_code error;
  // Checks the fields that Beast's parser accepts, as a connection does.
  (void)parser.put(boost::asio::buffer(bytes), error);
  if (parser.is_header_done()) CheckHead(parser.fields(), parser.version());
  // Also checks fields that the parser would have refused, one per line.
  std::vector<HttpHeader> fields;
  for (std::string_view rest = bytes; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(rest.size(), end + 1));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    fields.push_back({LowerWithoutBlanks(std::string(line.substr(0, colon))),
                      std::string(line.substr(colon + 1))});
  }
  CheckHead(fields, 11);
  CheckHead(fields, 10);
  return 0;
}
