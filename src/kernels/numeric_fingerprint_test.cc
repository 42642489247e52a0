#include "kernels/numeric_fingerprint.h"

#include <gtest/gtest.h>

#include "kernels/dispatch.h"

namespace sluice::kernels {
namespace {

TEST(NumericFingerprintTest, IsTheSameEveryTime) {
  for (const Isa isa : AvailableIsas()) {
    SelectIsa(isa);
    EXPECT_EQ(NumericFingerprint(), NumericFingerprint()) << IsaName(isa);
  }
  SelectIsa(AvailableIsas().back());
}

}  // namespace
}  // namespace sluice::kernels
