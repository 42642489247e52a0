#include "base/base64.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Base64Test, DecodesEveryLength) {
  EXPECT_EQ(DecodeBase64("").value(), "");
  EXPECT_EQ(DecodeBase64("Zg==").value(), "f");
  EXPECT_EQ(DecodeBase64("Zm8=").value(), "fo");
  EXPECT_EQ(DecodeBase64("Zm9v").value(), "foo");
  EXPECT_EQ(DecodeBase64("+/+/").value(), "\xfb\xff\xbf");
}

TEST(Base64Test, EncodesWhatItDecodes) {
  for (const std::string bytes : {"", "f", "fo", "foo", "foob", "fooba", "foobar", "\xfb\xff\xbf"})
    EXPECT_EQ(DecodeBase64(EncodeBase64(bytes)).value(), bytes);
  EXPECT_EQ(EncodeBase64("fo"), "Zm8=");
}

TEST(Base64Test, RefusesWhatIsNone) {
  EXPECT_FALSE(DecodeBase64("Zm9"));
  EXPECT_FALSE(DecodeBase64("===="));
  EXPECT_FALSE(DecodeBase64("Zg=a"));
  EXPECT_EQ(DecodeBase64("Zm9v\nZm9v\n\n\n").error().message, "character 4 is not base64");
}

}  // namespace
}  // namespace sluice
