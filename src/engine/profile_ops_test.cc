// Times of operators, measured while an engine computes.
#include <map>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "base/source_path_testing.h"
#include "engine/engine_testing.h"

namespace sluice {
namespace {

using testing::CollectingSink;

// Number of calls of each operator during an answer of `num_tokens` tokens, and the answer.
struct Profile {
  std::map<std::string, int64_t> calls;
  std::vector<int32_t> tokens;
};

Profile ProfileOf(bool profile_ops, int tensor_ranks, int64_t num_tokens) {
  EngineConfig config;
  config.model_folder = SourcePath("tests/data/checkpoints/llama-bf16");
  config.tensor_parallel_size = tensor_ranks;
  config.exact_ranks = true;
  config.num_threads = tensor_ranks;
  config.kv_cache_bytes = int64_t{8} << 20;
  config.max_model_len = 64;
  config.profile_ops = profile_ops;
  auto engine = Engine::Create(config, {});
  EXPECT_TRUE(engine) << engine.error().message;
  Request request;
  request.prompt = {1, 2, 3};
  request.sampling = testing::GreedyFor(num_tokens);
  request.sampling.ignore_eos = true;
  const auto sink = std::make_shared<CollectingSink>();
  request.sink = sink;
  EXPECT_TRUE((*engine)->Submit(std::move(request)));
  EXPECT_TRUE(sink->WaitForEnd());
  Profile profile{.calls = {}, .tokens = sink->tokens()};
  if ((*engine)->info().op_times == nullptr) return profile;
  for (const OpTime& op : (*engine)->info().op_times->All()) {
    EXPECT_GT(op.seconds, 0) << op.op;
    profile.calls[op.op] = op.calls;
  }
  return profile;
}

int64_t CallsOf(const Profile& profile, std::string_view name) {
  int64_t calls = 0;
  for (const auto& [op, count] : profile.calls) calls += op.starts_with(name) ? count : 0;
  return calls;
}

TEST(ProfileOps, CountsEachOperatorOfEachStep) {
  const Profile without = ProfileOf(/*profile_ops=*/false, 1, 5);
  EXPECT_TRUE(without.calls.empty());
  const Profile with = ProfileOf(/*profile_ops=*/true, 1, 5);
  EXPECT_EQ(with.tokens, without.tokens);
  EXPECT_EQ(CallsOf(with, "Embed "), 5);
  EXPECT_EQ(CallsOf(with, "Attend "), 2 * 5);  // layers * steps
  EXPECT_GT(CallsOf(with, "Project "), 5 * CallsOf(with, "Embed "));
}

TEST(ProfileOps, TheFirstOfSeveralRanksCounts) {
  const Profile profile = ProfileOf(/*profile_ops=*/true, 2, 5);
  EXPECT_EQ(CallsOf(profile, "Embed "), 5);
  EXPECT_GT(CallsOf(profile, "Gather "), 0);
}

}  // namespace
}  // namespace sluice
