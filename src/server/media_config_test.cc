#include "server/media_config.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(MediaConfigTest, LimitsAreNumbersOrCounts) {
  EXPECT_EQ(MaxImagesOf("").value(), 999);
  EXPECT_EQ(MaxImagesOf(R"({"image":4,"video":0})").value(), 4);
  EXPECT_EQ(MaxImagesOf(R"({"image":{"count":3,"width":512}})").value(), 3);
  EXPECT_FALSE(MaxImagesOf(R"({"image":"x"})"));
  EXPECT_FALSE(MaxImagesOf("image=4"));
}

TEST(MediaConfigTest, BackgroundIsThreeBytes) {
  EXPECT_EQ(BackgroundOf("").value(), (std::array<uint8_t, 3>{255, 255, 255}));
  EXPECT_EQ(BackgroundOf(R"({"image":{"rgba_background_color":[0,1,2]}})").value(),
            (std::array<uint8_t, 3>{0, 1, 2}));
  EXPECT_FALSE(BackgroundOf(R"({"image":{"rgba_background_color":[0,1,256]}})"));
  EXPECT_FALSE(BackgroundOf(R"({"image":{"mode":"L"}})"));
}

}  // namespace
}  // namespace sluice
