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
  const ProcessedImageCache cache(1000), other(1000);
  EXPECT_EQ(cache.KeyOf("a"), cache.KeyOf("a"));
  EXPECT_NE(cache.KeyOf("a"), cache.KeyOf("b"));
  EXPECT_NE(cache.KeyOf("a"), other.KeyOf("a")) << "each cache has its own secret";
}

TEST(ProcessedImageCacheTest, ForgetsAllIfCleared) {
  ProcessedImageCache cache(10'000);
  cache.Keep({0, 1}, PartsOfBytes(4000));
  cache.Clear();
  EXPECT_TRUE(cache.Find({0, 1}).empty());
  EXPECT_EQ(cache.bytes(), 0);
  cache.Keep({0, 1}, PartsOfBytes(4000));
  EXPECT_EQ(cache.Find({0, 1}).size(), 1);
}

}  // namespace
}  // namespace sluice
