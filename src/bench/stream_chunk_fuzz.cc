// Fuzz target: reads arbitrary bytes as an event of a stream. A JSON object may be refused only if
// it contains an integer outside 64 bits.
#include "base/fuzz_input.h"
#include "base/json.h"
#include "bench/stream_chunk.h"

namespace {

bool HasBigInteger(const sluice::json::Value& value) {
  if (value.is_array()) {
    for (const auto& element : value.as_array()) {
      if (HasBigInteger(element)) return true;
    }
  }
  if (value.is_object()) {
    for (const auto& [key, member] : value.as_object()) {
      if (HasBigInteger(member)) return true;
    }
  }
  return value.is_big_integer();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const std::string_view text = fuzz::Text(data, size);
  bench::StreamChunk chunk;
  const bool scanned = bench::ScanChunk(text, chunk);
  const auto value = json::Parse(text, {.max_bytes = size, .max_depth = 60});
  if (value && value->is_object() && !HasBigInteger(*value)) fuzz::Require(scanned);
  return 0;
}
