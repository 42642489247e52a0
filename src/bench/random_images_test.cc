#include "bench/random_images.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/base64.h"
#include "media/decode_image.h"

namespace sluice::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(RandomImages, SizesAreReadAsPythonAndJsonWriteThem) {
  for (const char* text : {"{(256, 128, 1): 0.5, (720,1280,1):1, (8, 8, 16): 0.0}",
                           "{\"(256, 128, 1)\": 0.5, \"(720, 1280, 1)\": 1,}",
                           "{ ( 256 , 128 , 1 ) : .5 , '(720, 1280, 1)' : 1e0 }"}) {
    const auto buckets = ParseImageBuckets(text);
    ASSERT_TRUE(buckets) << text << ": " << buckets.error().message;
    ASSERT_THAT(*buckets, SizeIs(2)) << text;
    EXPECT_EQ((*buckets)[0].height, 256);
    EXPECT_EQ((*buckets)[0].width, 128);
    EXPECT_EQ((*buckets)[0].weight, 0.5);
    EXPECT_EQ((*buckets)[1].width, 1280);
  }
}

TEST(RandomImages, WhatIsNoSizeIsNamed) {
  for (const char* text :
       {"", "{", "{}", "{(1, 2): 3}", "{(1, 2, 1): -1}", "{(1, 2, 1): nan}", "{(1, 2, 1) 1}",
        "{(1, 2, 0): 1}", "{(1, 2, 1): 1} x", "{(1, 2, 1): 1 (3, 4, 1): 1}", "{(1, 2, 1): 0}",
        "[1]", "{\"(1, 2, 1): 1}", "{,}"}) {
    const auto buckets = ParseImageBuckets(text);
    ASSERT_FALSE(buckets) << text;
    EXPECT_THAT(buckets.error().message, HasSubstr("expected")) << text;
  }
  EXPECT_THAT(ParseImageBuckets("{(8, 20000, 1): 1}").error().message,
              HasSubstr("sides of 1 to 16384, found 8 x 20000"));
  const auto video = ParseImageBuckets("{(8, 8, 16): 1}");
  ASSERT_FALSE(video);
  EXPECT_EQ(video.error().code, ErrorCode::kUnsupported);
}

TEST(RandomImages, NumbersAndSizesAreThoseAskedFor) {
  const RandomImageOptions options = {
      .base_items = 2, .range_ratio = 0.5, .buckets = {{8, 24, 1}, {40, 16, 1}}};
  const auto requests = MakeRandomImages(options, 40, 7);
  ASSERT_TRUE(requests);
  ASSERT_THAT(*requests, SizeIs(40));
  std::set<size_t> counts;
  std::set<std::pair<int, int>> sizes;
  std::set<std::string> different;
  size_t total = 0;
  for (const auto& images : *requests) {
    counts.insert(images.size());
    total += images.size();
    for (const std::string& url : images) {
      const std::string begin = "data:image/jpeg;base64,";
      ASSERT_EQ(url.substr(0, begin.size()), begin);
      const std::string file = *DecodeBase64(std::string_view(url).substr(begin.size()));
      const auto image = DecodeImage(file, *ReadImageHeader(file));
      ASSERT_TRUE(image) << image.error().message;
      sizes.emplace(image->height, image->width);
      different.insert(url);
    }
  }
  EXPECT_EQ(counts, (std::set<size_t>{1, 2, 3}));
  EXPECT_EQ(sizes, (std::set<std::pair<int, int>>{{8, 24}, {40, 16}}));
  EXPECT_EQ(different.size(), total);
  EXPECT_EQ(*MakeRandomImages(options, 40, 7), *requests);
  EXPECT_NE(*MakeRandomImages(options, 40, 8), *requests);
}

TEST(RandomImages, NumbersThatContradictAreRefused) {
  const auto requests = MakeRandomImages({.base_items = 5, .most_items = 3}, 1, 0);
  ASSERT_FALSE(requests);
  EXPECT_THAT(requests.error().message, HasSubstr("at least 5 images"));
}

}  // namespace
}  // namespace sluice::bench
