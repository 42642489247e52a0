#include "kernels/dispatch.h"

#include <gtest/gtest.h>

#include "kernels/kernel_table.h"
#include "kernels/vector_kernel.h"

namespace sluice::kernels {
namespace {

int ExpectedVersion(Isa isa) {
  switch (isa) {
    case Isa::kReference: return 0;
    case Isa::kPortable: return kPortableVersion;
    case Isa::kAvx2:
    case Isa::kAvx2Vnni:
    case Isa::kNeon:
    case Isa::kNeonDotprod:
    case Isa::kNeonBf16: return 1;
    default: return 2;
  }
}

class DispatchTest : public ::testing::Test {
 protected:
  void TearDown() override { ASSERT_TRUE(SelectIsa("auto").has_value()); }
};

TEST_F(DispatchTest, SelectsProductsAndVectorKernelsTogether) {
  for (Isa isa : AvailableIsas()) {
    ASSERT_TRUE(SelectIsa(IsaName(isa)).has_value());
    EXPECT_EQ(CurrentIsa(), isa);
    EXPECT_EQ(&Kernels() == &kReferenceKernels, isa == Isa::kReference);
    EXPECT_EQ(VectorVersion(), ExpectedVersion(isa)) << IsaName(isa);
  }
}

TEST_F(DispatchTest, RefusesUnknownNames) {
  const Status status = SelectIsa("sse2");
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(status.error().message.find("reference"), std::string::npos) << status.error().message;
}

}  // namespace
}  // namespace sluice::kernels
