// Fuzz target: a WebP file.
#include "media/image_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return sluice::fuzz::DecodeAs("RIFF", data, size);
}
