// Fuzz target: decodes arbitrary bytes as a rank's facts. Accepted facts are within the limits and
// survive a round trip through the encoder.
#include "base/fuzz_input.h"
#include "parallel/handshake.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT: a program of one file
  const auto facts = DecodeFacts(std::as_bytes(std::span(data, size)));
  if (!facts) return 0;
  fuzz::Require(facts->size() <= kMostFacts);
  const auto bytes = EncodeFacts(*facts);
  const auto again = DecodeFacts(bytes);
  fuzz::Require(again.has_value() && EncodeFacts(*again) == bytes);
  return 0;
}
