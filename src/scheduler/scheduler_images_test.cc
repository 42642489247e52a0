// Prompts with images: which images a step computes, which it does not split, and which prefixes
// are found. Blocks of four tokens, and a runner that computes nothing.
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct ImageSequence : ScheduledSequence {
  std::string name;
};

// A prompt has text tokens and images, identified by number, with a token per row.
struct PromptImage {
  int64_t begin = 0, end = 0;
  uint64_t number = 0;
};

class ImageWorld {
 public:
  explicit ImageWorld(bool is_whole, int64_t max_image_rows = 8, int64_t pool_rows = 24,
                      int64_t tokens = 16)
      : is_whole_(is_whole),
        pool_(64),
        index_(pool_, 4),
        images_(pool_rows),
        scheduler_(LimitsOf(tokens, max_image_rows), pool_, &index_, nullptr, &images_) {}

  ImageSequence& Add(const std::string& name, int64_t prompt,
                     const std::vector<PromptImage>& images) {
    auto sequence = std::make_unique<ImageSequence>();
    sequence->name = name;
    sequence->tokens.assign(static_cast<size_t>(prompt), 7);
    sequence->keys = sequence->tokens;
    sequence->num_prompt_tokens = prompt;
    sequence->max_total_tokens = prompt + 1;
    for (const PromptImage& image : images) {
      const int64_t rows = image.end - image.begin;
      const ImageId id = images_.Hold({image.number, image.number}, rows);
      sequence->images.push_back({id, image.begin, image.end, rows, is_whole_});
      for (int64_t i = image.begin; i < image.end; ++i)
        sequence->keys[static_cast<size_t>(i)] = -1 - id;
    }
    scheduler_.Add(*sequence);
    all_.push_back(std::move(sequence));
    return *all_.back();
  }

  // "name:tokens" for each slice, and "name+" for each image that the step computes.
  std::vector<std::string> Step() {
    std::vector<std::string> told;
    const StepPlan& plan = scheduler_.Plan();
    for (const StepPlan::NewImage& made : plan.new_images)
      told.push_back(static_cast<ImageSequence*>(made.sequence)->name + "+");
    std::vector<ScheduledSequence*> done;
    for (const PlannedSlice& slice : plan.slices) {
      auto& sequence = static_cast<ImageSequence&>(*slice.sequence);
      told.push_back(sequence.name + ":" + std::to_string(slice.num_tokens));
      for (const ScheduledSequence::Image& image : sequence.images) {
        const int64_t end = slice.first + slice.num_tokens;
        if (image.end <= slice.first || image.begin >= end) continue;
        EXPECT_TRUE(images_.HasRows(image.id) && images_.IsUsed(image.id));
        if (is_whole_) {
          EXPECT_LE(image.end, end) << "cut";
        }
      }
      if (slice.samples) done.push_back(&sequence);
    }
    images_.EndStep();
    scheduler_.Commit();
    for (ScheduledSequence* sequence : done) {
      sequence->tokens.push_back(1);
      scheduler_.Remove(*sequence);
    }
    EXPECT_TRUE(scheduler_.CheckInvariant());
    EXPECT_TRUE(images_.CheckInvariant());
    return told;
  }

 private:
  static SchedulerLimits LimitsOf(int64_t tokens, int64_t max_image_rows) {
    SchedulerLimits limits;
    limits.block_size = 4;
    limits.max_num_batched_tokens = tokens;
    limits.max_num_seqs = 4;
    limits.max_prompt_logit_rows = 4;
    limits.chunked_prefill = true;
    limits.max_image_rows = max_image_rows;
    return limits;
  }

  bool is_whole_;
  BlockPool pool_;
  PrefixIndex index_;
  ImagePool images_;
  Scheduler scheduler_;
  std::vector<std::unique_ptr<ImageSequence>> all_;
};

TEST(SchedulerImagesTest, AnImageIsDividedUnlessItsTokensSeeEachOther) {
  ImageWorld divides(/*is_whole=*/false);
  divides.Add("a", 30, {{10, 20, 1}});
  EXPECT_THAT(divides.Step(), ElementsAre("a+", "a:16"));
  EXPECT_THAT(divides.Step(), ElementsAre("a:14"));
  ImageWorld whole(/*is_whole=*/true);
  whole.Add("a", 30, {{10, 20, 1}});
  EXPECT_THAT(whole.Step(), ElementsAre("a:10"));
  EXPECT_THAT(whole.Step(), ElementsAre("a+", "a:16"));
  EXPECT_THAT(whole.Step(), ElementsAre("a:4"));
}

TEST(SchedulerImagesTest, AStepMakesRowsWithinItsBudgetOrOneImage) {
  ImageWorld world(/*is_whole=*/false, /*max_image_rows=*/8, /*pool_rows=*/24, /*tokens=*/32);
  world.Add("a", 26, {{1, 11, 1}, {12, 18, 2}, {20, 24, 3}});
  EXPECT_THAT(world.Step(), ElementsAre("a+", "a:12"));
  EXPECT_THAT(world.Step(), ElementsAre("a+", "a:8"));
  EXPECT_THAT(world.Step(), ElementsAre("a+", "a:6"));
}

TEST(SchedulerImagesTest, RowsAreSharedAndMadeAgainWhereTheyWereEvicted) {
  ImageWorld world(/*is_whole=*/false, /*max_image_rows=*/100, /*pool_rows=*/10);
  world.Add("a", 9, {{1, 7, 1}});
  EXPECT_THAT(world.Step(), ElementsAre("a+", "a:9"));
  // Other text precedes the image: no common prefix.
  world.Add("b", 12, {{3, 9, 1}});
  EXPECT_THAT(world.Step(), ElementsAre("b:12"));
  world.Add("c", 12, {{3, 10, 2}});
  EXPECT_THAT(world.Step(), ElementsAre("c+", "c:12"));
  world.Add("d", 13, {{4, 10, 1}});
  EXPECT_THAT(world.Step(), ElementsAre("d+", "d:13"));
}

TEST(SchedulerImagesTest, AStepUsesNoMoreRowsThanThereAre) {
  ImageWorld world(/*is_whole=*/false, /*max_image_rows=*/100, /*pool_rows=*/10);
  world.Add("a", 16, {{1, 7, 1}, {8, 14, 2}});
  EXPECT_THAT(world.Step(), ElementsAre("a+", "a:8"));
  EXPECT_THAT(world.Step(), ElementsAre("a+", "a:8"));
}

TEST(SchedulerImagesTest, PrefixesWithAnotherImageAreOthers) {
  ImageWorld world(/*is_whole=*/true, /*max_image_rows=*/100);
  world.Add("a", 16, {{2, 8, 1}});
  EXPECT_THAT(world.Step(), ElementsAre("a+", "a:16"));
  world.Add("b", 16, {{2, 8, 2}});
  EXPECT_THAT(world.Step(), ElementsAre("b+", "b:16")) << "the same text";
  ImageSequence& again = world.Add("c", 16, {{2, 8, 1}});
  EXPECT_THAT(world.Step(), ElementsAre("c:4"));
  EXPECT_EQ(again.cached_tokens, 12);
  EXPECT_THAT(world.Step(), IsEmpty());
}

}  // namespace
}  // namespace sluice
