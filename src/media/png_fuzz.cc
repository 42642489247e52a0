// Fuzz target: a PNG file.
#include "media/image_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return sluice::fuzz::DecodeAs("\x89PNG\r\n\x1a\n", data, size);
}
