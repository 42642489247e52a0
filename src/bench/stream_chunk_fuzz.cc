// Fuzz target: any bytes as an event of a stream. A JSON object is never refused.
#include "base/fuzz_input.h"
#include "base/json.h"
#include "bench/stream_chunk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const std::string_view text = fuzz::Text(data, size);
  bench::StreamChunk chunk;
  const bool scanned = bench::ScanChunk(text, chunk);
  if (scanned) (void)bench::UnescapeJson(chunk.text);
  (void)bench::UnescapeJson(text);
  const auto value = json::Parse(text, {.max_bytes = size, .max_depth = 60});
  if (value && value->is_object()) fuzz::Require(scanned);
  return 0;
}
