// Fuzz target: parsing arbitrary bytes terminates, and a parsed value is equal after it is written
// and parsed again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using sluice::json::Parse;
  const auto value = Parse({reinterpret_cast<const char*>(data), size});
  if (!value) return 0;
  const auto again = Parse(sluice::json::Write(*value));
  if (!again || !(*again == *value)) std::abort();
  return 0;
}
