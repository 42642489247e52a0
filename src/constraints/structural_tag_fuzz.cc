// Fuzz target: compiles arbitrary bytes as a structural tag (constraint_fuzz.h).
#include "constraints/constraint_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return sluice::FuzzConstraint(sluice::ConstraintKind::kStructuralTag, data, size);
}
