#include "cli/failure_thread.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

using namespace std::chrono_literals;

TEST(FailureThreadTest, WhatItUsesLivesUntilItHasActed) {
  auto used = std::make_unique<std::atomic<int>>(0);
  std::optional<FailureThread> thread;
  thread.emplace([&used] {
    std::this_thread::sleep_for(50ms);
    ++*used;
  });
  thread->Report();
  thread.reset();
  EXPECT_EQ(*used, 1);
  used.reset();  // nothing uses it after this
}

TEST(FailureThreadTest, ActsOnceHoweverManyReport) {
  std::atomic<int> acts = 0;
  {
    FailureThread thread([&acts] { ++acts; });
    std::vector<std::thread> reporters;
    for (int i = 0; i < 8; ++i) reporters.emplace_back([&thread] { thread.Report(); });
    for (std::thread& reporter : reporters) reporter.join();
  }
  EXPECT_EQ(acts, 1);
}

TEST(FailureThreadTest, WithoutAReportItDoesNothing) {
  bool has_acted = false;
  {
    const FailureThread thread([&has_acted] { has_acted = true; });
  }
  EXPECT_FALSE(has_acted);
}

TEST(FailureThreadTest, AnExceptionEndsNoProcess) {
  FailureThread thread([] { throw std::runtime_error("no memory to tell of it"); });
  thread.Report();
}

}  // namespace
}  // namespace sluice::cli
