// The CPU promise for ranks that are processes: steps are sent as messages, and results are
// bit-identical. In these tests, the processes are threads that share only a communicator.
#include "models/process_model.h"

#include <filesystem>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/source_path_testing.h"
#include "models/lora_store.h"
#include "models/message_step_channel.h"
#include "models/parallel_testing.h"
#include "parallel/local_group.h"

namespace sluice {
namespace {

using testing::DataFolder;
using testing::LogitRows;
using testing::OptionsOf;
using testing::RowsUnlike;
using testing::Runner;
using testing::SmallOptions;

constexpr const char* kCheckpoint = "llama-bf16";

std::vector<int32_t> TokensFrom(int32_t first, int32_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((first + i * 37) % 100);
  return tokens;
}

// Sequences that begin, continue and end at different steps.
LogitRows RunSteps(Runner& runner) {
  LogitRows all;
  const auto add = [&](std::vector<LogitRows> slices) {
    for (LogitRows& rows : slices) std::move(rows.begin(), rows.end(), std::back_inserter(all));
  };
  add(runner.RunStep({{0, TokensFrom(1, 40)}, {1, TokensFrom(2, 3)}}));
  for (int32_t i = 0; i < 4; ++i) add(runner.RunStep({{1, {i}}, {0, {i + 5}}}));
  runner.Forget(1);
  add(runner.RunStep({{0, {9}}, {1, TokensFrom(4, 20)}}));
  return all;
}

// Counts the bytes that rank 0 exchanges in a step.
class CountingCommunicator final : public Communicator {
 public:
  struct Counts {
    int64_t gathered_bytes = 0, gathers = 0;
    int64_t handed_bytes = 0;  // bytes sent between stages
    int64_t step_bytes = 0;    // bytes of the message that describes the step, to rank 1
  };
  CountingCommunicator(Communicator& to, Counts& counts, std::unique_ptr<Communicator> owned = {})
      : Communicator(to.rank(), to.size()), to_(to), counts_(counts), owned_(std::move(owned)) {}

  void Gather(ThreadPool& pool, std::span<const int64_t> widths, int64_t rows, const void* mine,
              void* all, std::optional<int> root) override {
    counts_.gathered_bytes += std::accumulate(widths.begin(), widths.end(), int64_t{0}) * rows;
    ++counts_.gathers;
    to_.Gather(pool, widths, rows, mine, all, root);
  }
  void Broadcast(void* data, int64_t bytes, int root, Patience patience) override {
    to_.Broadcast(data, bytes, root, patience);
  }
  // Stages use the group of all ranks; steps are published through another group.
  void Post(const void* data, int64_t bytes, int to) override {
    if (owned_ == nullptr) {
      counts_.handed_bytes += bytes;
    } else if (to == 1) {
      counts_.step_bytes += bytes;
    }
    to_.Post(data, bytes, to);
  }
  void AwaitPosted(int to, int64_t most) override { to_.AwaitPosted(to, most); }
  void Receive(void* data, int64_t bytes, int from, Patience patience) override {
    to_.Receive(data, bytes, from, patience);
  }
  void Progress() override { to_.Progress(); }
  std::unique_ptr<Communicator> Split(int first, int count) override {
    auto split = to_.Split(first, count);
    Communicator& part = *split;
    return std::make_unique<CountingCommunicator>(part, counts_, std::move(split));
  }
  void Fail(const std::string& reason) override { to_.Fail(reason); }
  std::string failure() const override { return to_.failure(); }

 private:
  Communicator& to_;
  Counts& counts_;
  std::unique_ptr<Communicator> owned_;
};

// Starts ranks as threads that represent processes. Calls body(runner) at rank 0.
template <typename Body>
void WithProcesses(const ModelConfig& config, const std::string& name, const ModelOptions& options,
                   int tensor_size, int num_stages, const Body& body,
                   CountingCommunicator::Counts* counts = nullptr) {
  const ParallelOptions parallel = OptionsOf({tensor_size, num_stages}, config, options, 1);
  auto group = MakeLocalGroup({.size = parallel.num_ranks(), .spin = false});
  std::vector<std::thread> others;
  for (size_t rank = 1; rank < group.size(); ++rank) {
    others.emplace_back([&, rank] {
      ThreadPool pool(1);
      auto process =
          RankProcessModel::Load(*group[rank], pool, DataFolder(name), config, options, parallel);
      ASSERT_TRUE(process) << process.error().message;
      (*process)->Follow();
    });
  }
  CountingCommunicator::Counts unused;
  CountingCommunicator first(*group[0], counts != nullptr ? *counts : unused);
  {
    ThreadPool pool(1);
    auto process = RankProcessModel::Load(first, pool, DataFolder(name), config, options, parallel);
    ASSERT_TRUE(process) << process.error().message;
    ParallelShare lead = (*process)->TakeLead();
    Runner runner(std::move(lead.model), std::move(lead.cache), options, 1);
    body(runner);
  }
  for (std::thread& thread : others) thread.join();
}

constexpr std::pair<int, int> kSizes[] = {{2, 1}, {3, 1}, {1, 2}, {2, 2}};

TEST(ProcessModelTest, StepsThatTravelKeepTheirBits) {
  ModelOptions options = SmallOptions(ElementType::kBF16, ElementType::kBF16);
  options.max_context = 128;
  for (const char* name :
       {kCheckpoint, "tiny-olmo3", "tiny-gpt-oss-mxfp4", "tiny-gemma4-shared", "tiny-qwen3.5"}) {
    const auto config = LoadModelConfig(DataFolder(name));
    ASSERT_TRUE(config);
    Runner alone(DataFolder(name), options, 1);
    const LogitRows expected = RunSteps(alone);
    for (const auto& [tensor_size, num_stages] : kSizes) {
      if (tensor_size > config->num_attention_heads) continue;
      WithProcesses(*config, name, options, tensor_size, num_stages, [&](Runner& runner) {
        EXPECT_EQ(RowsUnlike(RunSteps(runner), expected), 0U)
            << name << ", tp " << tensor_size << " pp " << num_stages;
      });
    }
  }
}

// Slots are filled on all ranks, between steps, from any thread.
TEST(ProcessModelTest, AdaptersAreLoadedOnAllRanks) {
  ModelOptions options = SmallOptions(ElementType::kBF16, ElementType::kBF16);
  options.max_context = 128;
  options.lora = {.num_slots = 2, .max_rank = 8, .type = ElementType::kBF16, .target_modules = {}};
  const auto config = LoadModelConfig(DataFolder(kCheckpoint));
  ASSERT_TRUE(config);
  const std::filesystem::path folder = SourcePath("tests/data/adapters/llama-vocabulary");
  const auto fill = [&](Runner& runner, int slot, const std::filesystem::path& from) -> Status {
    const auto store = runner.model().lora();
    ASSIGN_OR_RETURN(const LoraAdapter adapter, LoraAdapter::Open(from, store->layout()));
    return store->Fill(slot, adapter);
  };
  const std::vector<int32_t> tokens = TokensFrom(1, 30);
  Runner alone(DataFolder(kCheckpoint), options, 1);
  const LogitRows without = alone.RunAlone(tokens, 11);
  ASSERT_TRUE(fill(alone, 1, folder));
  const LogitRows expected = alone.RunAlone(tokens, 11, /*adapter=*/1);
  for (const auto& [tensor_size, num_stages] : kSizes) {
    WithProcesses(*config, kCheckpoint, options, tensor_size, num_stages, [&](Runner& runner) {
      EXPECT_EQ(RowsUnlike(runner.RunAlone(tokens, 11), without), 0U);
      std::thread loading([&] {
        const Status filled = fill(runner, 1, folder);
        EXPECT_TRUE(filled) << filled.error().message;
      });
      EXPECT_EQ(RowsUnlike(runner.RunAlone(tokens, 11), without), 0U) << "while it is loaded";
      loading.join();
      EXPECT_EQ(RowsUnlike(runner.RunAlone(tokens, 11, /*adapter=*/1), expected), 0U)
          << "tp " << tensor_size << " pp " << num_stages;
      EXPECT_EQ(RowsUnlike(runner.RunAlone(tokens, 11), without), 0U);
    });
  }
}

// The number of bytes per token agrees with the formula in docs/distributed.md.
TEST(ProcessModelTest, ATokenSendsWhatTheFormulaSays) {
  ModelOptions options = SmallOptions(ElementType::kBF16, ElementType::kBF16);
  options.max_context = 128;
  for (const char* name : {kCheckpoint, "tiny-olmo3"}) {
    const auto config = LoadModelConfig(DataFolder(name));
    ASSERT_TRUE(config);
    const DecoderSpec& spec = config->spec;
    const AttentionSpec& attention = spec.layers.front().attention;
    const auto num_layers = static_cast<int64_t>(spec.layers.size());
    const bool norms_whole_rows = attention.qk_norm == QkNorm::kWholeWidth;
    const int64_t layer = 2 * attention.q_width() + 2 * spec.layers[0].mlp.intermediate_size +
                          8 * spec.hidden_size +
                          (norms_whole_rows ? 4 * (attention.q_width() + attention.kv_width()) : 0);
    const int64_t ends = 4 * (spec.hidden_size + spec.vocab_size);
    for (const auto& [tensor_size, num_stages] : kSizes) {
      CountingCommunicator::Counts counts, before;
      WithProcesses(
          *config, name, options, tensor_size, num_stages,
          [&](Runner& runner) {
            runner.RunStep({{0, TokensFrom(3, 20)}});
            before = counts;
            runner.RunStep({{0, {5}}});
          },
          &counts);
      const int64_t own_layers = CutLayers(num_layers, 0, num_stages).size();
      const auto gathered = counts.gathered_bytes - before.gathered_bytes;
      const auto gathers = counts.gathers - before.gathers;
      const int64_t per_layer = norms_whole_rows ? 6 : 4;
      EXPECT_EQ(gathered, tensor_size == 1 ? 0 : own_layers * layer + ends) << name;
      EXPECT_EQ(gathers, tensor_size == 1 ? 0 : per_layer * own_layers + 2);
      EXPECT_EQ(counts.handed_bytes - before.handed_bytes,
                num_stages == 1 ? 0 : 4 * spec.hidden_size);
      EXPECT_LT(counts.step_bytes - before.step_bytes, 40) << "of a sequence that decodes";
    }
  }
}

// If one rank cannot read an adapter, the error names the rank, and the group continues.
TEST(ProcessModelTest, AnAdapterThatOneRankLacksIsRefused) {
  const StepLimits limits{.max_rows = 8,
                          .max_slices = 2,
                          .max_context = 32,
                          .max_logit_rows = 8,
                          .num_blocks = 4,
                          .vocab_size = 100,
                          .num_adapters = 2};
  auto group = MakeLocalGroup({.size = 3, .spin = false});
  std::vector<std::string> asked(3);
  std::vector<std::thread> others;
  for (size_t rank = 1; rank < group.size(); ++rank) {
    others.emplace_back([&, rank] {
      const auto channel =
          MakeMessageStepChannel(*group[rank], limits, 1, [&](int slot, const std::string& folder) {
            asked[rank] += fmt::format("{} {};", slot, folder);
            if (folder == "/bad" && rank == 2) return Status(Fail(ErrorCode::kNotFound, "absent"));
            return Status();
          });
      EXPECT_FALSE(channel->Receive());
    });
  }
  const auto channel = MakeMessageStepChannel(*group[0], limits, 1);
  EXPECT_TRUE(channel->FillEverywhere(1, "/good"));
  const Status bad = channel->FillEverywhere(0, "/bad");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message, "rank 2: absent");
  EXPECT_EQ(bad.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(channel->FillEverywhere(0, "/good"));
  EXPECT_FALSE(channel->FillEverywhere(0, std::string(5000, 'x')));
  channel->Close();
  for (std::thread& other : others) other.join();
  EXPECT_EQ(asked[1], "1 /good;0 /bad;0 /good;");
  EXPECT_EQ(asked[2], asked[1]);
}

TEST(ProcessModelTest, ARankThatCannotLoadFailsAll) {
  const ModelOptions options = SmallOptions(ElementType::kBF16, ElementType::kBF16);
  const auto config = LoadModelConfig(DataFolder(kCheckpoint));
  ASSERT_TRUE(config);
  const ParallelOptions parallel = OptionsOf({2, 1}, *config, options, 1);
  auto group = MakeLocalGroup({.size = 2, .spin = false});
  std::thread other([&] {
    ThreadPool pool(1);
    EXPECT_FALSE(RankProcessModel::Load(*group[1], pool, "/nowhere", *config, options, parallel));
  });
  ThreadPool pool(1);
  std::string thrown;
  try {
    const auto process = RankProcessModel::Load(*group[0], pool, DataFolder(kCheckpoint), *config,
                                                options, parallel);
  } catch (const GroupError& error) {
    thrown = error.what();
  }
  other.join();
  EXPECT_THAT(thrown, ::testing::StartsWith("rank 1: "));
  EXPECT_THAT(thrown, ::testing::HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace sluice
