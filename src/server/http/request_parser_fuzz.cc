// Fuzz target: reads arbitrary bytes as HTTP requests on one connection. The result must not depend
// on how the network splits them.
#include "base/fuzz_input.h"
#include "server/http/request_parser.h"

namespace {

using namespace sluice;

// Describes the first request as a connection reads it; "" if it is refused or incomplete, because
// how early bad bytes are detected does depend on the pieces.
std::string Read(std::string_view bytes, size_t piece) {
  namespace http = boost::beast::http;
  HttpRequestParser parser(std::make_shared<RequestMemory>(uint64_t{64} << 20));
  parser.header_limit(64 << 10);
  parser.body_limit(1 << 20);
  parser.eager(true);
  std::string buffer;
  while (!parser.is_done() && !bytes.empty()) {
    buffer += bytes.substr(0, piece);
    bytes.remove_prefix(std::min(piece, bytes.size()));
    while (!parser.is_done()) {
      boost::system::error_code error;
      const size_t used = parser.put(boost::asio::buffer(buffer), error);
      buffer.erase(0, used);
      if (error && error != http::error::need_more) return "";
      if (used == 0 || error == http::error::need_more) break;
    }
  }
  if (!parser.is_done()) return "";
  std::string text = parser.method() + " " + parser.target() + "\n";
  for (const HttpHeader& header : parser.fields()) text += header.name + ": " + header.value + "\n";
  text += "\n" + parser.body();
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = fuzz::Text(data, size);
  fuzz::Require(Read(bytes, std::max<size_t>(size, 1)) == Read(bytes, 1));
  (void)PercentDecode(bytes);
  (void)PercentEncodeUnsafe(bytes);
  return 0;
}
