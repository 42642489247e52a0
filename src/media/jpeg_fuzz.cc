// Fuzz target: a JPEG file.
#include "media/image_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return sluice::fuzz::DecodeAs("\xFF\xD8\xFF", data, size);
}
