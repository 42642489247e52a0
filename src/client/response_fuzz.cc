// Fuzz target: parses arbitrary bytes as an HTTP answer with events. The result must not depend on
// how the bytes are cut into pieces.
#include "base/fuzz_input.h"
#include "client/event_stream.h"
#include "client/response_parser.h"

namespace {

using namespace sluice;

// Describes the outcome as text.
std::string Read(std::string_view bytes, size_t piece) {
  ResponseParser parser;
  EventStream events;
  std::string body, data;
  while (!bytes.empty() && !parser.done()) {
    std::string_view front = bytes.substr(0, piece);
    bytes.remove_prefix(front.size());
    while (!front.empty() && !parser.done()) {
      const auto part = parser.Take(front);
      if (!part) return "no HTTP";
      body += *part;
      events.Take(*part, [&](std::string_view event) {
        data += std::string(event) + "\x1f";
        return true;
      });
    }
  }
  const bool complete = parser.End().has_value();
  return std::to_string(parser.started() ? parser.status() : 0) +
         (complete ? " complete " : " cut ") + body + "\x1e" + data;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = fuzz::Text(data, size);
  fuzz::Require(Read(bytes, std::max<size_t>(size, 1)) == Read(bytes, 1));
  return 0;
}
