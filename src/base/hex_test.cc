#include "base/hex.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(HexDigits, AreTwoPerByteAndLowerCase) {
  const unsigned char bytes[] = {0x00, 0x0A, 0xFF, 0x5c};
  EXPECT_EQ(HexDigits(bytes), "000aff5c");
  EXPECT_EQ(HexDigits({}), "");
}

}  // namespace
}  // namespace sluice
