#include "constraints/constraint_compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <new>
#include <stdexcept>
#include <vector>

namespace sluice {
namespace {

class FakeConstraint final : public Constraint {
 public:
  explicit FakeConstraint(size_t bytes) : bytes_(bytes) {}
  std::unique_ptr<TokenMatcher> NewMatcher() const override { return nullptr; }
  size_t bytes() const override { return bytes_; }

 private:
  const size_t bytes_;
};

// Compiles any text except "wrong" to a constraint of 1000 bytes, once the gate is open.
class FakeEngine final : public ConstraintEngine {
 public:
  explicit FakeEngine(std::shared_future<void> gate, std::atomic<int>* compiled)
      : gate_(std::move(gate)), compiled_(compiled) {}
  Result<std::shared_ptr<const Constraint>> Compile(const ConstraintSpec& spec) const override {
    gate_.wait();
    ++*compiled_;
    if (spec.text == "fatal") throw std::bad_alloc();
    if (spec.text == "wrong") return Fail(ErrorCode::kInvalidArgument, "no");
    return std::make_shared<const FakeConstraint>(1000);
  }

 private:
  const std::shared_future<void> gate_;
  std::atomic<int>* const compiled_;
};

class ConstraintCompilerTest : public ::testing::Test {
 protected:
  using Compiled = ConstraintCompiler::Compiled;

  std::future<Compiled> Start(const std::string& text) {
    auto promise = std::make_shared<std::promise<Compiled>>();
    compiler_.Compile({ConstraintKind::kRegex, text},
                      [promise](Compiled compiled) { promise->set_value(std::move(compiled)); });
    return promise->get_future();
  }
  std::shared_ptr<const Constraint> Get(const std::string& text) { return *Start(text).get(); }

  std::promise<void> gate_;
  std::atomic<int> compiled_ = 0;
  std::atomic<int> num_failures_ = 0;  // number of times that creating the engine fails
  ConstraintCompiler compiler_{[gate = gate_.get_future().share(), this] {
                                 if (num_failures_-- > 0) throw std::runtime_error("no tokens");
                                 return std::make_unique<FakeEngine>(gate, &compiled_);
                               },
                               /*num_threads=*/2, /*cache_bytes=*/3500};
};

TEST_F(ConstraintCompilerTest, EqualSpecsAreCompiledOnce) {
  auto first = Start("a");
  auto second = Start("a");
  gate_.set_value();
  EXPECT_EQ(*first.get(), *second.get());
  EXPECT_EQ(Get("a"), Get("a"));
  EXPECT_EQ(compiled_, 1);
}

TEST_F(ConstraintCompilerTest, WhatThrowsFailsThoseThatWaitForItAlone) {
  gate_.set_value();
  num_failures_ = 1;
  EXPECT_EQ(Start("a").get().error().code, ErrorCode::kInternal);
  // A spec that arrives while others are being refused is also refused. After that, the engine is
  // created.
  Compiled again = Start("a").get();
  while (!again) again = Start("a").get();
  EXPECT_NE(*again, nullptr) << "tried again";
  EXPECT_EQ(Start("fatal").get().error().code, ErrorCode::kResourceExhausted);
  std::promise<void> is_told;
  compiler_.Compile({ConstraintKind::kRegex, "b"}, [&](const Compiled& compiled) {
    if (compiled) throw std::bad_alloc();
    is_told.set_value();
  });
  is_told.get_future().wait();
  EXPECT_NE(Get("b"), nullptr);
}

TEST_F(ConstraintCompilerTest, TheLeastRecentlyUsedGoesFirst) {
  gate_.set_value();
  for (const char* text : {"a", "b", "c"}) Get(text);
  Get("a");
  Get("d");  // evicts b
  EXPECT_EQ(compiled_, 4);
  Get("a");
  Get("c");
  EXPECT_EQ(compiled_, 4);
  Get("b");
  EXPECT_EQ(compiled_, 5);
}

TEST_F(ConstraintCompilerTest, ErrorsAreToldAndNotKept) {
  gate_.set_value();
  EXPECT_EQ(Start("wrong").get().error().message, "no");
  EXPECT_FALSE(Start("wrong").get());
  EXPECT_EQ(compiled_, 2);
}

TEST_F(ConstraintCompilerTest, TooManyThatWaitAreRefused) {
  std::vector<std::future<Compiled>> waiting;
  for (size_t i = 0; i < ConstraintCompiler::kMaxWaiting; ++i)
    waiting.push_back(Start(std::to_string(i)));
  EXPECT_EQ(Start("more").get().error().code, ErrorCode::kUnavailable);
  gate_.set_value();
  for (auto& one : waiting) EXPECT_TRUE(one.get());
  EXPECT_TRUE(Start("more").get());
}

TEST_F(ConstraintCompilerTest, StopDropsWhatWaits) {
  std::vector<std::future<Compiled>> waiting;
  for (const char* text : {"a", "b", "c"}) waiting.push_back(Start(text));
  std::thread opener([this] { gate_.set_value(); });
  compiler_.Stop();
  opener.join();
  Start("d");
  EXPECT_LE(compiled_, 3);
}

}  // namespace
}  // namespace sluice
