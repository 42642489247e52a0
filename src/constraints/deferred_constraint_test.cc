#include "constraints/deferred_constraint.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr int32_t kEnd = 63;
const std::vector<std::string> kTokens = {"a", "b", "<think>", "x</thi", "nk>y"};

// Allows `a`, then `b`, then the end.
class AbMatcher final : public TokenMatcher {
 public:
  bool Advance(int32_t token) override {
    if (token != Next()) return false;
    ++taken_;
    return true;
  }
  bool FillMask(std::span<uint32_t> mask) override {
    std::ranges::fill(mask, 0u);
    mask[static_cast<size_t>(Next()) / 32] = 1u << (Next() % 32);
    return true;
  }
  void RollBack(int num_tokens) override { taken_ -= num_tokens; }
  void Reset() override { taken_ = 0; }
  bool is_finished() const override { return taken_ == 3; }

 private:
  int32_t Next() const { return taken_ == 2 ? kEnd : taken_; }
  int taken_ = 0;
};

class AbConstraint final : public Constraint {
 public:
  std::unique_ptr<TokenMatcher> NewMatcher() const override {
    return std::make_unique<AbMatcher>();
  }
  size_t bytes() const override { return 7; }
};

std::unique_ptr<TokenMatcher> Matcher(bool begins_inside) {
  ReasoningMarks marks;
  marks.begins_inside = begins_inside;
  if (!begins_inside) marks.begin = {2};
  marks.end = {"</think>", "never"};
  marks.bytes_of = [](int32_t token) { return kTokens[static_cast<size_t>(token)]; };
  const auto constraint = AfterReasoning(std::make_shared<AbConstraint>(), std::move(marks));
  EXPECT_EQ(constraint->bytes(), 7u);
  return constraint->NewMatcher();
}

uint64_t MaskOf(TokenMatcher& matcher) {
  std::vector<uint32_t> mask(2, 5u);
  EXPECT_TRUE(matcher.FillMask(mask));
  return uint64_t{mask[1]} << 32 | mask[0];
}

constexpr uint64_t kAll = ~uint64_t{0};

TEST(DeferredConstraintTest, LeavesAThoughtFreeAndBeginsAfterIt) {
  const auto matcher = Matcher(/*begins_inside=*/true);
  for (const int32_t token : {1, 1, 3, 3}) {
    EXPECT_EQ(MaskOf(*matcher), kAll);
    EXPECT_TRUE(matcher->Advance(token));
  }
  // The end mark lies across two tokens.
  EXPECT_TRUE(matcher->Advance(4));
  EXPECT_EQ(MaskOf(*matcher), uint64_t{1} << 0);
  EXPECT_FALSE(matcher->Advance(1));
  EXPECT_TRUE(matcher->Advance(0));
  EXPECT_FALSE(matcher->is_finished());
  EXPECT_TRUE(matcher->Advance(1));
  EXPECT_TRUE(matcher->Advance(kEnd));
  EXPECT_TRUE(matcher->is_finished());
}

TEST(DeferredConstraintTest, LetsAnAnswerThinkOrBeginAtOnce) {
  const auto matcher = Matcher(/*begins_inside=*/false);
  EXPECT_EQ(MaskOf(*matcher), uint64_t{0b101});
  EXPECT_FALSE(matcher->Advance(1));
  EXPECT_TRUE(matcher->Advance(0));
  EXPECT_EQ(MaskOf(*matcher), uint64_t{0b10}) << "a thought comes first, or not at all";
  matcher->Reset();
  EXPECT_TRUE(matcher->Advance(2));
  EXPECT_EQ(MaskOf(*matcher), kAll);
}

TEST(DeferredConstraintTest, RollsBackIntoTheThoughtAndOutOfIt) {
  const auto matcher = Matcher(/*begins_inside=*/false);
  for (const int32_t token : {2, 3, 4, 0, 1}) ASSERT_TRUE(matcher->Advance(token));
  matcher->RollBack(1);
  EXPECT_EQ(MaskOf(*matcher), uint64_t{0b10});
  matcher->RollBack(2);  // the last is the token that ended the thought
  EXPECT_EQ(MaskOf(*matcher), kAll);
  EXPECT_TRUE(matcher->Advance(4));
  EXPECT_EQ(MaskOf(*matcher), uint64_t{1});
  matcher->RollBack(3);
  EXPECT_EQ(MaskOf(*matcher), uint64_t{0b101});
  ASSERT_TRUE(matcher->Advance(0));
  matcher->RollBack(1);
  EXPECT_EQ(MaskOf(*matcher), uint64_t{0b101});
}

}  // namespace
}  // namespace sluice
