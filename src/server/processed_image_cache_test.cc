#include "server/processed_image_cache.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

ImageParts PartsOfBytes(size_t bytes) {
  auto image = std::make_shared<ProcessedImage>();
  image->values.resize(bytes / sizeof(float));
  return {image};
}

TEST(ProcessedImageCacheTest, ForgetsWhatWasUsedLongestAgo) {
  ProcessedImageCache cache(10'000);
  cache.Keep({0, 1}, PartsOfBytes(4000));
  cache.Keep({0, 2}, PartsOfBytes(4000));
  EXPECT_EQ(cache.Find({0, 1}).size(), 1);
  cache.Keep({0, 3}, PartsOfBytes(4000));
  EXPECT_TRUE(cache.Find({0, 2}).empty());
  EXPECT_EQ(cache.Find({0, 1}).size(), 1);
  EXPECT_EQ(cache.Find({0, 3}).size(), 1);
  EXPECT_LE(cache.bytes(), 10'000);
}

TEST(ProcessedImageCacheTest, KeepsNothingLargerThanItself) {
  ProcessedImageCache cache(1000);
  cache.Keep({0, 1}, PartsOfBytes(4000));
  EXPECT_TRUE(cache.Find({0, 1}).empty());
  EXPECT_EQ(cache.bytes(), 0);
}

TEST(ProcessedImageCacheTest, KeysTellBytesApart) {
  EXPECT_EQ(ProcessedImageCache::KeyOf("a"), ProcessedImageCache::KeyOf("a"));
  EXPECT_NE(ProcessedImageCache::KeyOf("a"), ProcessedImageCache::KeyOf("b"));
}

}  // namespace
}  // namespace sluice
