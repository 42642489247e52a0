// Fuzz target: a BMP file.
#include "media/image_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return sluice::fuzz::DecodeAs("BM", data, size);
}
