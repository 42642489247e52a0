#include "constraints/deferred_constraint.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr int32_t kEnd = 63;
constexpr int32_t kCall = 62;
const std::vector<std::string> kTokens = {"a",  "b",   "<think>", "x</thi", "nk>",       "nk>y",
                                          "My", " th", "ought:",  "M",      "a</think>b"};

// Allows `a` or `M`, then `b`, then the end.
class AbMatcher final : public TokenMatcher {
 public:
  bool Advance(int32_t token) override {
    if (token != Next() && !(taken_ == 0 && token == 9)) return false;
    ++taken_;
    return true;
  }
  bool FillMask(std::span<uint32_t> mask) override {
    std::ranges::fill(mask, 0u);
    mask[static_cast<size_t>(Next()) / 32] = 1u << (Next() % 32);
    if (taken_ == 0) mask[0] |= 1u << 9;
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

std::unique_ptr<TokenMatcher> Matcher(AnswerStart start, ThoughtMarks marks) {
  const auto bytes_of = [](int32_t token) {
    return static_cast<size_t>(token) < kTokens.size() ? kTokens[static_cast<size_t>(token)] : "";
  };
  const auto tokens = std::make_shared<const ThoughtTokens>(
      std::move(marks), 64, bytes_of, std::vector<int32_t>{kEnd, kCall}, std::vector{kCall});
  const auto constraint = AfterThought(std::make_shared<AbConstraint>(), tokens, start);
  EXPECT_EQ(constraint->bytes(), 7u);
  return constraint->NewMatcher();
}

std::unique_ptr<TokenMatcher> Matcher(AnswerStart start) {
  return Matcher(start, {.begin = {"<think>", "My thought:"}, .end = {"</think>", "never"}});
}

uint64_t MaskOf(TokenMatcher& matcher) {
  std::vector<uint32_t> mask(2, 5u);
  EXPECT_TRUE(matcher.FillMask(mask));
  return uint64_t{mask[1]} << 32 | mask[0];
}

constexpr uint64_t Bits(std::initializer_list<int> tokens) {
  uint64_t bits = 0;
  for (const int token : tokens) bits |= uint64_t{1} << token;
  return bits;
}

// Mask within a thought: excludes tokens that end the answer, or that contain the end mark and
// more.
constexpr uint64_t kThought = ~Bits({kEnd, kCall, 10});
constexpr uint64_t kFirst = Bits({0, 9, 2, 6});

TEST(DeferredConstraintTest, LeavesAThoughtFreeAndBeginsAfterIt) {
  const auto matcher = Matcher({.inside_thought = true});
  for (const int32_t token : {1, 1, 3}) {
    EXPECT_EQ(MaskOf(*matcher), kThought);
    EXPECT_TRUE(matcher->Advance(token));
  }
  EXPECT_TRUE(matcher->Advance(3));
  // The next token may complete the end mark, but must not contain text after it.
  EXPECT_EQ(MaskOf(*matcher), kThought & ~Bits({5}));
  EXPECT_FALSE(matcher->Advance(5));
  EXPECT_TRUE(matcher->Advance(4));
  EXPECT_EQ(MaskOf(*matcher), Bits({0, 9}));
  EXPECT_FALSE(matcher->Advance(1));
  EXPECT_TRUE(matcher->Advance(0));
  EXPECT_FALSE(matcher->is_finished());
  EXPECT_TRUE(matcher->Advance(1));
  EXPECT_TRUE(matcher->Advance(kEnd));
  EXPECT_TRUE(matcher->is_finished());
}

TEST(DeferredConstraintTest, AnAnswerDoesNotEndInsideItsThought) {
  const auto matcher = Matcher({.inside_thought = true});
  EXPECT_FALSE(matcher->Advance(kEnd));
  EXPECT_FALSE(matcher->Advance(kCall));
  EXPECT_TRUE(matcher->Advance(1));
  EXPECT_FALSE(matcher->Advance(kEnd));
  EXPECT_EQ(MaskOf(*matcher), kThought);
  const auto calls = Matcher({.inside_thought = true, .calls_end_it = true});
  EXPECT_EQ(MaskOf(*calls), kThought | Bits({kCall}));
  EXPECT_FALSE(calls->Advance(kEnd));
  EXPECT_TRUE(calls->Advance(kCall));
}

TEST(DeferredConstraintTest, LetsAnAnswerThinkOrBeginAtOnce) {
  const auto matcher = Matcher({});
  EXPECT_EQ(MaskOf(*matcher), kFirst);
  EXPECT_FALSE(matcher->Advance(1));
  EXPECT_FALSE(matcher->Advance(kEnd));
  EXPECT_TRUE(matcher->Advance(0));
  EXPECT_EQ(MaskOf(*matcher), Bits({1})) << "a thought comes first, or not at all";
  matcher->Reset();
  EXPECT_TRUE(matcher->Advance(2));
  EXPECT_EQ(MaskOf(*matcher), kThought);
  EXPECT_EQ(MaskOf(*Matcher({.may_think = false})), Bits({0, 9}));
}

TEST(DeferredConstraintTest, AMarkMayLieAcrossTokens) {
  const auto matcher = Matcher({});
  ASSERT_TRUE(matcher->Advance(6));
  EXPECT_EQ(MaskOf(*matcher), Bits({7})) << "only the mark can go on";
  EXPECT_FALSE(matcher->Advance(1));
  ASSERT_TRUE(matcher->Advance(7));
  ASSERT_TRUE(matcher->Advance(8));
  EXPECT_EQ(MaskOf(*matcher), kThought);
  matcher->RollBack(1);
  EXPECT_EQ(MaskOf(*matcher), Bits({8}));
  matcher->RollBack(2);
  EXPECT_EQ(MaskOf(*matcher), kFirst);
}

TEST(DeferredConstraintTest, WhatBeginsAMarkMayBeTheConstrainedText) {
  const auto matcher =
      Matcher({}, {.begin = {"Mab"}, .end = {"</think>"}});  // "M" and "b" may also be constrained
                                                             // text
  EXPECT_EQ(MaskOf(*matcher), Bits({0, 9}));
  ASSERT_TRUE(matcher->Advance(9));
  EXPECT_EQ(MaskOf(*matcher), Bits({0, 1}));
  ASSERT_TRUE(matcher->Advance(1));
  EXPECT_EQ(MaskOf(*matcher), Bits({kEnd}));
  matcher->RollBack(1);
  EXPECT_EQ(MaskOf(*matcher), Bits({0, 1}));
  ASSERT_TRUE(matcher->Advance(0));
  EXPECT_EQ(MaskOf(*matcher), Bits({1})) << "the mark goes on, the text cannot";
  ASSERT_TRUE(matcher->Advance(1));
  EXPECT_EQ(MaskOf(*matcher), kThought);
  matcher->RollBack(2);
  EXPECT_EQ(MaskOf(*matcher), Bits({0, 1}));
  ASSERT_TRUE(matcher->Advance(1));
  EXPECT_TRUE(matcher->Advance(kEnd));
  EXPECT_TRUE(matcher->is_finished());
  matcher->RollBack(3);
  EXPECT_EQ(MaskOf(*matcher), Bits({0, 9}));
}

TEST(DeferredConstraintTest, AnEndMarkMayCountAfterAnotherTextOnly) {
  // The required text begins within the mark that begins the thought, or comes later.
  const auto matcher =
      Matcher({}, {.begin = {"<think>"}, .end = {"ought:"}, .before_end = "<think>b"});
  ASSERT_TRUE(matcher->Advance(2));
  ASSERT_TRUE(matcher->Advance(1));
  ASSERT_TRUE(matcher->Advance(8));
  EXPECT_EQ(MaskOf(*matcher), Bits({0, 9}));
  matcher->RollBack(2);
  for (const int32_t token : {8, 0, 2, 0, 8, 2, 1, 0}) {
    ASSERT_TRUE(matcher->Advance(token));
    EXPECT_EQ(MaskOf(*matcher), ~Bits({kEnd, kCall}));
  }
  matcher->RollBack(1);
  ASSERT_TRUE(matcher->Advance(8));
  EXPECT_EQ(MaskOf(*matcher), Bits({0, 9}));
  matcher->RollBack(2);
  ASSERT_TRUE(matcher->Advance(8));
  EXPECT_EQ(MaskOf(*matcher), ~Bits({kEnd, kCall})) << "the first half of the end is gone";
}

TEST(DeferredConstraintTest, RollsBackIntoTheThoughtAndOutOfIt) {
  const auto matcher = Matcher({});
  for (const int32_t token : {2, 3, 4, 0, 1}) ASSERT_TRUE(matcher->Advance(token));
  matcher->RollBack(1);
  EXPECT_EQ(MaskOf(*matcher), Bits({1}));
  matcher->RollBack(2);  // the last token is the token that ended the thought
  EXPECT_EQ(MaskOf(*matcher), kThought & ~Bits({5}));
  EXPECT_TRUE(matcher->Advance(4));
  EXPECT_EQ(MaskOf(*matcher), Bits({0, 9}));
  matcher->RollBack(3);
  EXPECT_EQ(MaskOf(*matcher), kFirst);
  ASSERT_TRUE(matcher->Advance(0));
  matcher->RollBack(1);
  EXPECT_EQ(MaskOf(*matcher), kFirst);
}

// Like harmony's messages: <|call|> ends only a call, not a thought.
TEST(DeferredConstraintTest, ACallEndsTheAnswerInAMessageToATool) {
  const std::vector<std::string> words = {
      "<|start|>",      "<|channel|>", "<|message|>", "<|end|>",  "assistant", "analysis",
      " to=functions.", " to=python",  "x",           " to=func", "tions."};
  enum : int32_t {
    kStart,
    kChannel,
    kMessage,
    kMessageEnd,
    kRole,
    kAnalysis,
    kTool,
    kPython,
    kX,
    kTo,
    kFunctions
  };
  const auto tokens = std::make_shared<const ThoughtTokens>(
      ThoughtMarks{.begin = {"<|channel|>"},
                   .end = {"<|message|>"},
                   .before_end = "<|channel|>final",
                   .messages = {.begin = {"<|start|>", "<|channel|>"},
                                .end = {"<|end|>"},
                                .text = "<|message|>",
                                .recipient = "to=functions."}},
      64,
      [words](int32_t token) {
        return static_cast<size_t>(token) < words.size() ? words[static_cast<size_t>(token)] : "";
      },
      std::vector<int32_t>{kEnd, kCall}, std::vector<int32_t>{kCall});
  const auto may_call = [&](AnswerStart start, const std::vector<int32_t>& taken) {
    const auto matcher =
        AfterThought(std::make_shared<AbConstraint>(), tokens, start)->NewMatcher();
    for (const int32_t token : taken) EXPECT_TRUE(matcher->Advance(token)) << token;
    // Undoes and redoes tokens: the state must be the one after the remaining tokens.
    if (!taken.empty()) {
      matcher->RollBack(1);
      EXPECT_TRUE(matcher->Advance(taken.back()));
    }
    const bool allowed = (MaskOf(*matcher) >> kCall & 1) != 0;
    EXPECT_EQ(matcher->Advance(kCall), allowed);
    return allowed;
  };
  const AnswerStart begins{.calls_end_it = true};
  const AnswerStart inside{.inside_thought = true, .calls_end_it = true};
  EXPECT_FALSE(may_call(inside, {}));
  EXPECT_FALSE(may_call(inside, {kX, kTool, kX})) << "words of a thought";
  EXPECT_FALSE(may_call(begins, {kChannel, kAnalysis}));
  EXPECT_FALSE(may_call(begins, {kChannel, kAnalysis, kMessage, kX}));
  EXPECT_FALSE(may_call(begins, {kChannel, kAnalysis, kTool, kX})) << "in the header";
  EXPECT_TRUE(may_call(begins, {kChannel, kAnalysis, kTool, kX, kMessage, kX}));
  EXPECT_TRUE(may_call(begins, {kChannel, kAnalysis, kTo, kFunctions, kX, kMessage}));
  EXPECT_FALSE(may_call(begins, {kChannel, kAnalysis, kPython, kMessage, kX}));
  const std::vector<int32_t> thought = {kChannel,  kAnalysis, kMessage, kX, kMessageEnd,
                                        kStart,    kRole,     kTool,    kX, kChannel,
                                        kAnalysis, kMessage,  kX};
  EXPECT_TRUE(may_call(begins, thought));
  std::vector<int32_t> after = thought;
  after.insert(after.end(), {kMessageEnd});
  EXPECT_FALSE(may_call(begins, after));
  AnswerStart none = begins;
  none.calls_end_it = false;
  EXPECT_FALSE(may_call(none, thought));
}

// Every rollback leads to the state after the remaining tokens.
TEST(DeferredConstraintTest, GoingBackIsAsIfTheTokensHadNotCome) {
  uint32_t state = 1;
  const auto random = [&state](uint32_t below) {
    state = state * 1664525 + 1013904223;
    return (state >> 16) % below;
  };
  for (int round = 0; round < 300; ++round) {
    const AnswerStart start{.inside_thought = random(3) == 0, .calls_end_it = random(2) == 0};
    const auto matcher = Matcher(start);
    std::vector<int32_t> taken;
    for (int step = 0; step < 30 && !matcher->is_finished(); ++step) {
      if (!taken.empty() && random(4) == 0) {
        const uint32_t back = 1 + random(static_cast<uint32_t>(taken.size()));
        matcher->RollBack(static_cast<int>(back));
        taken.resize(taken.size() - back);
      } else {
        const int32_t token = static_cast<int32_t>(random(12) == 11 ? kEnd : random(11));
        const bool allowed = (MaskOf(*matcher) >> token & 1) != 0;
        ASSERT_EQ(matcher->Advance(token), allowed) << token;
        if (allowed) taken.push_back(token);
      }
      const auto fresh = Matcher(start);
      for (const int32_t token : taken) ASSERT_TRUE(fresh->Advance(token));
      ASSERT_EQ(fresh->is_finished(), matcher->is_finished());
      if (!fresh->is_finished()) {
        ASSERT_EQ(MaskOf(*fresh), MaskOf(*matcher));
      }
    }
  }
}

}  // namespace
}  // namespace sluice
