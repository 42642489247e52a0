#include "cache/image_pool.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

namespace sluice {
namespace {

ImageHash NumberHash(uint64_t number) {
  return {number, ~number};
}

TEST(ImagePoolTest, RowsStayUntilOthersNeedTheRoom) {
  ImagePool pool(10);
  const ImageId a = pool.Hold(NumberHash(1), 4), b = pool.Hold(NumberHash(2), 5);
  EXPECT_EQ(pool.Hold(NumberHash(1), 4), a);
  EXPECT_TRUE(pool.Use(a));
  EXPECT_FALSE(pool.Use(a));
  EXPECT_EQ(pool.num_unused(), 6);
  EXPECT_TRUE(pool.Use(b));
  std::set<int32_t> places(pool.PlacesOf(a).begin(), pool.PlacesOf(a).end());
  places.insert(pool.PlacesOf(b).begin(), pool.PlacesOf(b).end());
  EXPECT_EQ(places.size(), 9u) << "apart";
  pool.EndStep();
  // `b` is used again, so `a` is the least recently used.
  EXPECT_FALSE(pool.Use(b));
  pool.EndStep();
  const ImageId c = pool.Hold(NumberHash(3), 3);
  EXPECT_TRUE(pool.Use(c));
  EXPECT_FALSE(pool.HasRows(a));
  EXPECT_TRUE(pool.HasRows(b));
  pool.EndStep();
  EXPECT_TRUE(pool.CheckInvariant());
}

TEST(ImagePoolTest, ResetSparesTheRowsOfTheStep) {
  ImagePool pool(10);
  const ImageId a = pool.Hold(NumberHash(1), 4), b = pool.Hold(NumberHash(2), 5);
  pool.Use(a);
  pool.EndStep();
  pool.Use(b);
  pool.Reset();
  EXPECT_FALSE(pool.HasRows(a));
  EXPECT_TRUE(pool.HasRows(b));
  EXPECT_TRUE(pool.CheckInvariant());
  pool.EndStep();
  pool.Release(b);
  pool.Reset();
  EXPECT_EQ(pool.num_images(), 0);
  EXPECT_TRUE(pool.CheckInvariant());
  EXPECT_TRUE(pool.Use(a)) << "its rows are to be computed again";
}

TEST(ImagePoolTest, AnImageKeepsItsIdWhenItComesAgain) {
  ImagePool pool(4);
  const ImageId a = pool.Hold(NumberHash(1), 2);
  pool.Release(a);
  EXPECT_EQ(pool.Hold(NumberHash(1), 2), a);
  pool.Release(a);
  for (size_t i = 0; i < ImagePool::kMostForgotten; ++i)
    pool.Release(pool.Hold(NumberHash(10 + i), 1));
  EXPECT_NE(pool.Hold(NumberHash(1), 2), a) << "not for ever";
  EXPECT_TRUE(pool.CheckInvariant());
}

TEST(ImagePoolTest, WhatWasNotMadeIsNotThere) {
  ImagePool pool(4);
  const ImageId a = pool.Hold(NumberHash(1), 3);
  EXPECT_TRUE(pool.Use(a));
  pool.Drop(a);
  pool.EndStep();
  EXPECT_FALSE(pool.HasRows(a));
  EXPECT_TRUE(pool.Use(a));
  pool.EndStep();
  EXPECT_TRUE(pool.CheckInvariant());
}

TEST(ImagePoolTest, RandomStepsKeepTheInvariant) {
  std::mt19937 random(3);
  ImagePool pool(64);
  std::vector<ImageId> held;
  for (int step = 0; step < 3000; ++step) {
    if (random() % 2 == 0) {
      const uint64_t number = random() % 40;
      held.push_back(pool.Hold(NumberHash(number), 1 + static_cast<int64_t>(number % 20)));
    } else if (!held.empty()) {
      const size_t index = random() % held.size();
      pool.Release(held[index]);
      held.erase(held.begin() + static_cast<ptrdiff_t>(index));
    }
    for (const ImageId image : held) {
      const auto rows = static_cast<int64_t>(pool.PlacesOf(image).size());
      if (random() % 3 == 0 && (rows > 0 ? rows : 20) <= pool.num_unused() && pool.Use(image) &&
          random() % 8 == 0)
        pool.Drop(image);
    }
    pool.EndStep();
    ASSERT_TRUE(pool.CheckInvariant());
  }
}

TEST(ImageHasherTest, TellsContentShapeAndSaltApart) {
  const ImageHasher hasher, other;
  const std::vector<float> a = {1, 2, 3}, b = {1, 2, 4};
  const ImageHash shape = {1, 1};
  EXPECT_EQ(hasher.HashOf(a, shape, ""), hasher.HashOf(a, shape, ""));
  EXPECT_NE(hasher.HashOf(a, shape, ""), hasher.HashOf(b, shape, ""));
  EXPECT_NE(hasher.HashOf(a, shape, ""), hasher.HashOf(a, {1, 2}, ""));
  EXPECT_NE(hasher.HashOf(a, shape, ""), hasher.HashOf(a, shape, "salt"));
  EXPECT_NE(hasher.HashOf(a, shape, ""), other.HashOf(a, shape, "")) << "a key of each process";
}

}  // namespace
}  // namespace sluice
