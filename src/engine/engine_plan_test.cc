#include "engine/engine_plan.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/source_path_testing.h"
#include "engine/kv_tiers.h"
#include "engine/plan_tower.h"
#include "engine/shared_memory.h"
#include "models/device/device_model.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kMiB = int64_t{1} << 20;

// 100 MiB of weights, 10 MiB of workspace, 1 MiB per block of 16 tokens, and 1 MiB per recorded
// step.
Result<ModelMemory> Sizes(const ModelConfig&, const ModelOptions& options, int) {
  return ModelMemory{.weight_bytes = 100 * kMiB,
                     .workspace_bytes = 10 * kMiB,
                     .graph_bytes = std::ssize(options.recorded.sequences) * kMiB,
                     .kv_bytes_per_group_block = kMiB};
}

struct Machine {
  int64_t total = 4000 * kMiB;
  int64_t available = 2000 * kMiB;
};

Result<EnginePlan> Plan(const EngineConfig& config, Machine machine = {},
                        int64_t positions = 131072,
                        std::optional<PoolingConfig> pooling = std::nullopt) {
  ModelConfig model;
  model.vocab_size = 256;
  model.max_position_embeddings = positions;
  MemoryLimits memory;
  memory.total_bytes = machine.total;
  memory.available_bytes = machine.available;
  Topology topology;
  topology.logical_cpus = 4;
  topology.core_cpus = {0, 2};
  return PlanEngine(config, model, memory, topology, Sizes, nullptr, {}, std::move(pooling));
}

// Plans a model whose sequences also keep states of 2 MiB each.
Result<EnginePlan> PlanWithStates(const EngineConfig& config,
                                  std::vector<AttentionSpan> spans = {{}}) {
  ModelConfig model;
  model.vocab_size = 256;
  model.max_position_embeddings = 1600;
  MemoryLimits memory;
  memory.total_bytes = 4000 * kMiB;
  memory.available_bytes = 2000 * kMiB;
  Topology topology;
  topology.logical_cpus = 4;
  topology.core_cpus = {0, 2};
  return PlanEngine(config, model, memory, topology,
                    [&](const ModelConfig& shape, const ModelOptions& options, int threads) {
                      Result<ModelMemory> sizes = Sizes(shape, options, threads);
                      sizes->state_bytes_per_slot = 2 * kMiB;
                      sizes->kv_groups.spans = spans;
                      return sizes;
                    });
}

TEST(EnginePlan, SharersDivideTheCacheThatNobodyAskedFor) {
  EngineConfig config;
  const auto alone = Plan(config);
  config.memory_sharers = 4;
  const auto shared = Plan(config);
  ASSERT_TRUE(alone && shared);
  EXPECT_EQ(shared->num_blocks, alone->num_blocks / 4);
  config.kv_cache_bytes = 64 * kMiB;
  EXPECT_EQ(Plan(config)->kv_bytes, 64 * kMiB);
}

TEST(EnginePlanTiers, TakeMemoryFromTheCacheAndAreRefusedWhereBlocksCannotMove) {
  EngineConfig config;
  const auto without = Plan(config);
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_EQ(without->tier_bytes, 0);
  config.offload.ram_bytes = 500 * kMiB;
  const auto ram = Plan(config);
  ASSERT_TRUE(ram) << ram.error().message;
  EXPECT_EQ(ram->tier_bytes, 500 * kMiB);
  EXPECT_EQ(ram->fixed_bytes(), without->fixed_bytes() + 500 * kMiB);
  EXPECT_THAT(MemoryTable(*ram), ::testing::Contains(HasSubstr("KV tiers")));
  config.offload.folder = "/somewhere";
  const auto both = Plan(config);
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_EQ(both->tier_bytes, (500 + 64 + 64) * kMiB) << "on the way to the disk and from it";
  EXPECT_THAT(MemoryTable(*both), ::testing::Contains(HasSubstr("/somewhere")));
  config.offload.ram_bytes = 5000 * kMiB;
  EXPECT_THAT(Plan(config).error().message,
              AllOf(HasSubstr("--kv-offloading-size"), HasSubstr("lower it")));
  config.offload.ram_bytes = 1;
  EXPECT_THAT(Plan(config).error().message, HasSubstr("do not hold a block"));
  config.offload.ram_bytes = 500 * kMiB;
  const auto states = PlanWithStates(config);
  ASSERT_TRUE(states) << states.error().message;
  EXPECT_EQ(states->tier_bytes, (500 + 2 * (64 + 64)) * kMiB) << "of blocks, and of snapshots";
  EXPECT_THAT(MemoryTable(*states), ::testing::Contains(HasSubstr("blocks and snapshots")));
  config.offload.ram_bytes = 3 * kMiB;
  EXPECT_THAT(PlanWithStates(config).error().message, HasSubstr("a snapshot of states of 2.0 MiB"));
  config.enable_prefix_caching = false;
  EXPECT_THAT(Plan(config).error().message, HasSubstr("--no-enable-prefix-caching"));
}

// Rank 0 of several processes plans the tiers of all when the caches are planned.
TEST(EnginePlanTiers, AreRefusedBesideACacheThatLeavesNoRoom) {
  auto plan = Plan({});
  ASSERT_TRUE(plan) << plan.error().message;
  const int64_t left = plan->memory.available_bytes - plan->taken_bytes();
  plan->config.offload.ram_bytes = left / kMiB * kMiB;
  EXPECT_TRUE(PlanTiers({}, {}, *plan));
  plan->tier_bytes = 0;
  plan->config.offload.ram_bytes += kMiB;
  const Status refused = PlanTiers({}, {}, *plan);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("of cache and"), HasSubstr("for requests"),
                    HasSubstr("--kv-offloading-size"), HasSubstr("--kv-cache-memory-bytes")));
}

TEST(EnginePlanTower, RanksToWhichStepsAreSentStoreImageRowsToo) {
  const auto model = LoadModelConfig(SourcePath("tests/data/checkpoints/tiny-qwen3-vl"));
  ASSERT_TRUE(model);
  const auto plan_with = [&](int stages, bool are_processes) {
    EnginePlan plan;
    plan.max_model_len = 64;
    plan.tower = **ReadTowerSpec(*model);
    plan.ranks.num_stages = are_processes ? 1 : stages;
    plan.scheduler.steps_in_flight = stages;
    plan.scheduler.max_num_batched_tokens = 4096;
    plan.config.are_ranks_processes = are_processes;
    PlanImageRows(plan);
    PlanTowerBytes(*model, /*num_threads=*/1, plan);
    return plan;
  };
  const EnginePlan alone = plan_with(1, false);
  const int64_t rows = alone.image_rows * alone.tower->row_width() * int64_t{sizeof(float)};
  EXPECT_EQ(plan_with(3, false).workspace_bytes - alone.workspace_bytes, (5 + 2 * 2) * rows)
      << "messages at rank 0, and a message and its rows at the others";
  EXPECT_EQ(plan_with(2, true).workspace_bytes - alone.workspace_bytes, 4 * rows);
}

TEST(EnginePlanStates, RunningSequencesGetHalfAndSnapshotsAQuarter) {
  const auto plan = PlanWithStates({});
  ASSERT_TRUE(plan) << plan.error().message;
  // The caches have 500 MiB.
  EXPECT_EQ(plan->scheduler.max_num_seqs, 125);
  EXPECT_EQ(plan->num_state_slots, 125 + 62);
  EXPECT_EQ(plan->state_bytes, 187 * 2 * kMiB);
  EXPECT_EQ(plan->num_blocks, 500 - 374);
  EXPECT_EQ(ModelOptionsOf(*plan).state_slots, 187);
  EXPECT_EQ(ModelOptionsOf(*plan).max_slices, 125);
  EXPECT_EQ(plan->scheduler.snapshot_interval, 1024);
  EXPECT_THAT(plan->notes, ::testing::Contains(HasSubstr("max_num_seqs is 125")));
  EXPECT_THAT(MemoryTable(*plan),
              ::testing::Contains(AllOf(HasSubstr("states"), HasSubstr("374.0 MiB"),
                                        HasSubstr("125 that run and 62 snapshots"))));
  EXPECT_EQ(plan->total_bytes(), plan->fixed_bytes() + plan->kv_bytes + 374 * kMiB);
}

TEST(EnginePlanStates, SnapshotsTakeWhatIsAskedForAndNoneWithoutPrefixCaching) {
  EngineConfig config;
  config.max_num_seqs = 10;
  EXPECT_EQ(PlanWithStates(config)->num_state_slots, 10 + 40) << "four a sequence";
  config.state_cache_bytes = 200 * kMiB;
  config.state_snapshot_interval = 100;
  EXPECT_EQ(PlanWithStates(config)->num_state_slots, 10 + 100);
  EXPECT_EQ(PlanWithStates(config)->scheduler.snapshot_interval, 112) << "whole blocks";
  config.state_cache_bytes = kMiB;
  EXPECT_THAT(PlanWithStates(config)->warnings,
              ::testing::Contains(HasSubstr("--state-cache-memory")));
  config.enable_prefix_caching = false;
  const auto plan = PlanWithStates(config);
  EXPECT_EQ(plan->num_state_slots, 10);
  EXPECT_TRUE(plan->warnings.empty());
}

TEST(EnginePlanStates, RefusesWhatDoesNotGoTogether) {
  EngineConfig config;
  config.kv_cache_bytes = 3 * kMiB;
  EXPECT_THAT(PlanWithStates(config).error().message, HasSubstr("the states of one sequence"));
  EXPECT_THAT(PlanWithStates({}, {{}, {.window = 8}}).error().message, HasSubstr("window"));
  config = {};
  config.speculation.method = SpeculationConfig::Method::kNgram;
  config.speculation.num_tokens = 2;
  const auto full = PlanWithStates(config);
  EXPECT_EQ(full->num_state_slots, 125 + 62 + 16) << "a slot for each row that may be proposed";
  config.state_cache_bytes = 248 * kMiB;
  EXPECT_THAT(PlanWithStates(config)->warnings,
              ::testing::Contains(HasSubstr("nothing is proposed")));
}

TEST(EnginePlan, AQuarterOfFreeMemoryByDefaultAndTheContextThatFits) {
  const auto plan = Plan({});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->num_blocks, 500);
  EXPECT_EQ(plan->max_model_len, 8000) << "131072 positions start on a small machine";
  ASSERT_EQ(plan->notes.size(), 1u);
  EXPECT_THAT(plan->notes[0], HasSubstr("max_model_len is 8000"));
  EXPECT_EQ(plan->num_threads, 2);
  EXPECT_EQ(plan->scheduler.max_num_seqs, kDefaultMaxNumSeqs);
  EXPECT_EQ(plan->scheduler.max_num_batched_tokens, kDefaultMaxNumBatchedTokens);
  EXPECT_EQ(plan->dtype, ElementType::kBF16);
  for (const std::string& line : MemoryTable(*plan)) EXPECT_LT(line.size(), 140u);
}

TEST(EnginePlan, TheCacheNeverExceedsWhatTheSequencesCouldUse) {
  EngineConfig config;
  config.max_num_seqs = 2;
  config.max_model_len = 64;
  EXPECT_EQ(Plan(config)->num_blocks, 8);
  config.max_model_len = 65;
  EXPECT_EQ(Plan(config)->num_blocks, 10);
}

TEST(EnginePlan, UtilizationCountsAllMemoryOfTheProcess) {
  EngineConfig config;
  config.memory_utilization =
      0.25;  // 1000 MiB, of which weights and workspace take 110 and logits some
  const auto plan = Plan(config);
  ASSERT_TRUE(plan);
  EXPECT_LE(plan->total_bytes(), 1000 * kMiB);
  EXPECT_GT(plan->num_blocks, 850);
  config.memory_utilization = 0.9;  // of 4000, but only 2000 are free
  EXPECT_LE(Plan(config)->total_bytes(), 2000 * kMiB);
  config.memory_utilization = 1.5;
  EXPECT_EQ(Plan(config).error().param, "gpu_memory_utilization");
}

TEST(EnginePlan, BytesAndBlocksOutright) {
  EngineConfig config;
  config.kv_cache_bytes = 1500 * kMiB;
  config.max_model_len = 16;
  config.max_num_seqs = 1;
  EXPECT_EQ(Plan(config)->num_blocks, 1500);
  config.num_blocks_override = 7;
  EXPECT_EQ(Plan(config)->num_blocks, 7);
  config.num_blocks_override = 5000;
  const auto plan = Plan(config);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(plan.error().message, HasSubstr("lower num_gpu_blocks_override"));
}

TEST(EnginePlan, EnginesShareTheWeightsAndDivideTheCache) {
  EngineConfig config;
  config.data_parallel_size = 2;
  const auto plan = Plan(config);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->num_engines, 2);
  EXPECT_EQ(plan->num_threads, 2);
  EXPECT_EQ(plan->weight_bytes, 100 * kMiB);
  const int64_t of_one = Plan({})->workspace_bytes;
  EXPECT_GT(plan->workspace_bytes, 2 * of_one - kMiB);
  EXPECT_LE(plan->workspace_bytes, 2 * of_one);
  EXPECT_EQ(plan->num_blocks, 250) << "of each: a quarter of the free memory for both";
  EXPECT_EQ(plan->kv_bytes, 500 * kMiB);
  EXPECT_THAT(plan->notes,
              ::testing::Contains(HasSubstr("2 engines share the weights and divide 2 threads")));
  EXPECT_THAT(MemoryTable(*plan),
              ::testing::Contains(HasSubstr("in each of 2 engines: 250 blocks")));
  config.kv_cache_bytes = 64 * kMiB;
  EXPECT_EQ(Plan(config)->num_blocks, 64) << "of each, as in vLLM";
  config.kv_cache_bytes.reset();
  config.data_parallel_size = 8;
  const auto many = Plan(config);
  ASSERT_TRUE(many) << many.error().message;
  EXPECT_EQ(many->num_threads, 8);
  EXPECT_THAT(many->warnings,
              ::testing::Contains(HasSubstr("which makes 8: fewer engines would be faster")));
  config.max_model_len = 2048;
  const auto refused = Plan(config);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("in each of 8 engines"));
  EXPECT_THAT(refused.error().message, HasSubstr("lower data_parallel_size"));
  config.data_parallel_size = 65;
  EXPECT_EQ(Plan(config).error().param, "data_parallel_size");
}

TEST(EnginePlan, RequestsGetHalfOfWhatIsLeft) {
  EngineConfig config;
  config.max_model_len = 16;
  config.kv_cache_bytes = 500 * kMiB;
  config.max_num_seqs = 500;
  auto plan = Plan(config);
  ASSERT_TRUE(plan) << plan.error().message;
  const int64_t left = 2000 * kMiB - plan->total_bytes();
  EXPECT_EQ(plan->request_bytes, left / 2);
  EXPECT_EQ(plan->taken_bytes(), plan->total_bytes() + left / 2);
  EXPECT_EQ(Plan(config, {40000 * kMiB, 40000 * kMiB})->request_bytes, 1024 * kMiB);
  config.request_memory_bytes = 100 * kMiB;
  EXPECT_EQ(Plan(config)->request_bytes, 100 * kMiB);
  config.request_memory_bytes = 1500 * kMiB;
  EXPECT_EQ(Plan(config).error().code, ErrorCode::kResourceExhausted);
  // A cache that could take all free memory leaves some for requests.
  config = {};
  config.memory_utilization = 1;
  plan = Plan(config);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->request_bytes, 64 * kMiB);
  EXPECT_LE(plan->taken_bytes(), 2000 * kMiB);
}

TEST(EnginePlan, AGivenContextThatDoesNotFitIsRefusedWithWhatWould) {
  EngineConfig config;
  config.max_model_len = 10000;
  const auto plan = Plan(config);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(plan.error().message, HasSubstr("at most 8000"));
  EXPECT_THAT(plan.error().message, HasSubstr("raise kv_cache_memory_bytes"));
  config.kv_cache_bytes = 700 * kMiB;
  EXPECT_TRUE(Plan(config));
  config = {};
  config.max_model_len = 200000;
  EXPECT_THAT(Plan(config).error().message, HasSubstr("max_position_embeddings"));
}

TEST(EnginePlan, WeightsBeyondMemoryAreRefused) {
  const auto plan = Plan({}, {100 * kMiB, 90 * kMiB});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(plan.error().message, HasSubstr("100.0 MiB"));
}

TEST(EnginePlan, BudgetsThatContradictEachOther) {
  EngineConfig config;
  config.max_num_batched_tokens = 64;
  const auto adjusted = Plan(config);
  ASSERT_TRUE(adjusted);
  EXPECT_EQ(adjusted->scheduler.max_num_seqs, 64) << "the default follows, and says so";
  EXPECT_THAT(adjusted->notes[0], HasSubstr("max_num_seqs is 64"));
  config.max_num_seqs = 65;
  EXPECT_EQ(Plan(config).error().code, ErrorCode::kInvalidArgument);
  config = {};
  config.enable_chunked_prefill = false;
  EXPECT_EQ(Plan(config)->scheduler.max_num_batched_tokens, 8000) << "a step holds a whole context";
  config.max_num_batched_tokens = 100;
  config.max_num_seqs = 4;
  config.max_model_len = 4096;
  EXPECT_EQ(Plan(config).error().param, "max_num_batched_tokens");
}

TEST(EnginePlan, AbsurdValuesAreRefused) {
  EngineConfig config;
  config.num_threads = 100000;
  EXPECT_EQ(Plan(config).error().param, "threads");
  config = {};
  config.num_threads = -1;
  EXPECT_EQ(Plan(config).error().param, "threads");
  config = {};
  config.dtype = ElementType::kI8;
  EXPECT_EQ(Plan(config).error().param, "dtype");
  config = {};
  config.block_size = 0;
  EXPECT_EQ(Plan(config).error().param, "block_size");
  config = {};
  config.max_num_seqs = 0;
  EXPECT_EQ(Plan(config).error().param, "max_num_seqs");
}

TEST(EnginePlan, Types) {
  EngineConfig config;
  config.dtype = ElementType::kF32;
  EXPECT_EQ(Plan(config)->kv_type, ElementType::kF32);
  config.kv_cache_dtype = ElementType::kBF16;
  EXPECT_EQ(Plan(config)->kv_type, ElementType::kBF16);
  config = {};
  config.dtype = ElementType::kF16;
  EXPECT_EQ(Plan(config)->dtype, ElementType::kBF16);
  EXPECT_THAT(Plan(config)->notes[0], HasSubstr("runs as bfloat16"));
}

// Llama 4 Scout's layer pattern; 1 MiB per block of 16 tokens in all layers.
Result<ModelMemory> ChunkedSizes(const ModelConfig&, const ModelOptions& options, int) {
  const AttentionSpan local{.chunk = 8192};
  std::vector<AttentionSpan> layers;
  for (int i = 0; i < 48; ++i) layers.push_back(i % 4 == 3 ? AttentionSpan() : local);
  const KvGroups groups = KvGroups::For(layers, options.max_context);
  return ModelMemory{
      .weight_bytes = 100 * kMiB,
      .workspace_bytes = 10 * kMiB,
      .kv_bytes_per_group_block = kMiB * groups.layers_per_group / groups.num_layers(),
      .kv_groups = groups};
}

Result<EnginePlan> PlanChunked(const EngineConfig& config, int64_t available = 4000 * kMiB) {
  ModelConfig model;
  model.vocab_size = 256;
  model.max_position_embeddings = 1 << 20;
  MemoryLimits memory;
  memory.total_bytes = 8000 * kMiB;
  memory.available_bytes = available;
  Topology topology;
  topology.logical_cpus = 4;
  topology.core_cpus = {0, 2};
  return PlanEngine(config, model, memory, topology, ChunkedSizes);
}

TEST(EnginePlan, LayersThatSeeAChunkLeaveRoomForLongerSequences) {
  const auto plan = PlanChunked({});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->kv_bytes_per_block, kMiB / 4);
  EXPECT_EQ(plan->num_blocks, 4000);
  // Three groups hold (8191 + 2048) / 16 = 640 blocks each; the fourth holds the other blocks.
  EXPECT_EQ(plan->max_model_len, (4000 - 3 * 640) * 16);
  EXPECT_EQ(plan->scheduler.groups.size(), 4u);
  EXPECT_EQ(MostBlocks(plan->scheduler, plan->max_model_len), 4000);
  const std::vector<std::string> table = MemoryTable(*plan);
  EXPECT_THAT(table[3], HasSubstr("4000 blocks of 16 tokens and 12 of 48 layers"));
  EXPECT_THAT(table[3], HasSubstr("1.0 sequences of 33280"));
  EXPECT_EQ(plan->kv_tokens(), 33280);
  EngineConfig config;
  config.num_blocks_override = 700;
  EXPECT_EQ(PlanChunked(config)->num_blocks, 2800) << "of a quarter of the layers each";
}

ModelConfig DraftModel() {
  ModelConfig draft;
  draft.vocab_size = 256;
  draft.max_position_embeddings = 4096;
  draft.spec.layers.resize(2);
  for (LayerSpec& layer : draft.spec.layers) {
    layer.attention.num_heads = layer.attention.num_kv_heads = 2;
    layer.attention.head_dim = 64;
  }
  return draft;
}

Result<EnginePlan> PlanWithDraft(const ModelConfig& draft, EngineConfig config = {},
                                 const DeviceInfo* device = nullptr,
                                 int64_t available_bytes = 2000 * kMiB) {
  config.draft.folder = "small";
  config.draft.num_tokens = 4;
  config.model_folder = "large";
  ModelConfig model;
  model.vocab_size = 256;
  model.max_position_embeddings = 131072;
  const MemoryLimits memory{.total_bytes = 4000 * kMiB, .available_bytes = available_bytes};
  Topology topology;
  topology.logical_cpus = 4;
  topology.core_cpus = {0, 2};
  return PlanEngine(config, model, memory, topology, Sizes, device, {}, {}, &draft);
}

TEST(EnginePlan, ADraftModelIsPartOfThePlan) {
  const auto plan = PlanWithDraft(DraftModel());
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_TRUE(plan->draft);
  const DraftPlan& draft = *plan->draft;
  // K and V of 16 tokens in 2 layers with 2 heads of 64 at 2 bytes, beside 1 MiB of the target's.
  EXPECT_EQ(draft.kv_bytes_per_block(), 16 * 1024);
  EXPECT_EQ(draft.num_blocks, 492);
  EXPECT_EQ(plan->num_blocks, 492);
  EXPECT_EQ(draft.kv_bytes, 492 * 16 * 1024);
  EXPECT_EQ(draft.weight_bytes, 100 * kMiB);
  EXPECT_GT(draft.workspace_bytes, 10 * kMiB);
  EXPECT_EQ(plan->total_bytes(),
            plan->weight_bytes + plan->workspace_bytes + plan->kv_bytes + draft.total_bytes());
  EXPECT_LE(plan->kv_bytes + draft.kv_bytes, 500 * kMiB) << "a quarter of what is free";
  EXPECT_EQ(draft.options.max_context, 4096) << "the draft's own";
  EXPECT_EQ(draft.options.max_slices, 32);
  const std::vector<std::string> table = MemoryTable(*plan);
  EXPECT_THAT(table[4], HasSubstr("draft"));
  EXPECT_THAT(table[4], HasSubstr("100.0 MiB of weights"));
  EXPECT_THAT(table[4], HasSubstr("7872 tokens"));
  for (const std::string& line : table) EXPECT_LT(line.size(), 140u);

  ModelConfig differing = DraftModel();  // the last layer also reads K and V of the wide one
  differing.spec.layers.resize(3, differing.spec.layers.front());
  differing.spec.layers[1].attention.head_dim = 128;
  differing.spec.layers[2].attention.kv_layer = 1;
  const auto with_differing = PlanWithDraft(differing);
  ASSERT_TRUE(with_differing) << with_differing.error().message;
  EXPECT_EQ(with_differing->draft->layout.head_dim, 128);
  EXPECT_EQ(with_differing->draft->kv_bytes_per_block(), 32 * 1024);

  EngineConfig config;
  config.num_blocks_override = 50;
  EXPECT_EQ(PlanWithDraft(DraftModel(), config)->num_blocks, 50);
  EXPECT_EQ(PlanWithDraft(DraftModel(), config)->draft->num_blocks, 50);
  config = {};
  config.max_model_len = 64;
  EXPECT_EQ(PlanWithDraft(DraftModel(), config)->draft->num_blocks, 32 * 4)
      << "what the sequences that it proposes for at a time can fill";
}

TEST(EnginePlan, ErrorsOfMemoryNameTheDraftModel) {
  const auto refusal = [](EngineConfig config, int64_t available) {
    const auto plan = PlanWithDraft(DraftModel(), std::move(config), nullptr, available);
    return plan ? std::string("accepted") : plan.error().message;
  };
  EXPECT_THAT(refusal({}, 200 * kMiB),
              AllOf(HasSubstr(", the draft model 1"), HasSubstr("or no draft model")));
  EngineConfig config;
  config.max_model_len = 131072;
  EXPECT_THAT(refusal(config, 2000 * kMiB),
              AllOf(HasSubstr("of workspace and "), HasSubstr(" of the draft model; "),
                    HasSubstr("or leave the draft model out")));
  config.kv_cache_bytes = 500 * kMiB;
  EXPECT_THAT(refusal(config, 2000 * kMiB), HasSubstr("beside 7.7 MiB of the draft model's"));
  config = {};
  config.kv_cache_bytes = 3000 * kMiB;
  EXPECT_THAT(refusal(config, 2000 * kMiB),
              ContainsRegex("of KV cache, [0-9.]+ [MG]iB of the draft model and "));
}

TEST(EnginePlan, DraftModelsThatCannotProposeAreRefusedByName) {
  const auto refusal = [](const Result<EnginePlan>& plan) {
    return plan ? std::string("accepted") : plan.error().message;
  };
  ModelConfig draft = DraftModel();
  draft.vocab_size = 300;
  EXPECT_THAT(refusal(PlanWithDraft(draft)),
              HasSubstr("the draft model in small: its vocabulary has 300 tokens, but that of the "
                        "model in large has 256"));
  draft = DraftModel();
  draft.architecture = "BertModel";
  EXPECT_THAT(refusal(PlanWithDraft(draft)), HasSubstr("BertModel gives no tokens"));
  EngineConfig config;
  config.draft.max_model_len = 5000;
  EXPECT_THAT(refusal(PlanWithDraft(DraftModel(), config)),
              HasSubstr("max_model_len of the draft model (5000) is larger than the default of "
                        "max_position_embeddings (4096)"));
  config.draft.max_model_len = 1000;
  EXPECT_EQ(PlanWithDraft(DraftModel(), config)->draft->options.max_context, 1000);
  DeviceInfo device;
  device.name = "NVIDIA H200";
  config = {};
  config.kv_cache_bytes = kMiB;
  EXPECT_THAT(refusal(PlanWithDraft(DraftModel(), config, &device)),
              HasSubstr("not yet on NVIDIA H200"));
}

TEST(EnginePlan, SequencesShorterThanAChunkNeedNoGroups) {
  const auto plan = PlanChunked({}, 1000 * kMiB);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->max_model_len, 250 * 16);
  EXPECT_EQ(plan->kv_groups.num_groups(), 1);
  EXPECT_EQ(plan->kv_bytes_per_block, kMiB);
  EXPECT_EQ(plan->num_blocks, 250);
  EngineConfig tiered;
  tiered.offload.ram_bytes = 100 * kMiB;
  const auto tiers = PlanChunked(tiered, 1000 * kMiB);
  ASSERT_TRUE(tiers) << tiers.error().message;
  EXPECT_EQ(tiers->kv_groups.num_groups(), 1);
  EXPECT_EQ(tiers->tier_block_bytes, tiers->kv_bytes_per_block) << "of the blocks that there are";
  EngineConfig config;
  config.max_model_len = 40000;
  const auto refused = PlanChunked(config);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("at most 33280"));
}

TEST(EnginePlan, TheTypeOfTheCache) {
  EngineConfig config;
  config.kv_cache_dtype = ElementType::kF8E4M3;
  EXPECT_EQ(Plan(config)->kv_type, ElementType::kF8E4M3);
  EXPECT_THAT(MemoryTable(*Plan(config))[3], HasSubstr("tokens in fp8"));
  config.kv_cache_dtype = ElementType::kF8E5M2;
  const auto refused = Plan(config);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "kv_cache_dtype");
  EXPECT_THAT(refused.error().message, HasSubstr("fp8_e4m3, got F8_E5M2"));
  config.kv_cache_dtype = ElementType::kF16;
  EXPECT_EQ(Plan(config)->kv_type, ElementType::kF16);
  config = {};
  config.dtype = ElementType::kF32;
  EXPECT_EQ(Plan(config)->kv_type, ElementType::kF32);
}

TEST(EnginePlan, DenseLayersBehindPoolingAreCounted) {
  PoolingConfig pooling;
  const auto plain = Plan({}, {}, 2048, pooling);
  pooling.dense = {{"2_Dense", 1024, 2048}};
  const auto dense = Plan({}, {}, 2048, pooling);
  ASSERT_TRUE(plain && dense);
  EXPECT_EQ(dense->weight_bytes - plain->weight_bytes, 8 * kMiB + 2048 * 4);
  EXPECT_GE(dense->workspace_bytes - plain->workspace_bytes,
            dense->scheduler.max_num_seqs * 2 * 2048 * 4);
}

// A device of 100 GiB, of which 99 are free.
Result<EnginePlan> PlanOnDevice(const EngineConfig& config, int64_t free_bytes = 99 * 1024 * kMiB,
                                std::optional<PoolingConfig> pooling = std::nullopt,
                                const char* architecture = "") {
  ModelConfig model;
  model.architecture = architecture;
  model.vocab_size = 256;
  model.max_position_embeddings = 1 << 20;
  const MemoryLimits memory{.total_bytes = 100 * 1024 * kMiB, .available_bytes = free_bytes};
  Topology topology;
  topology.core_cpus = {0, 2};
  DeviceInfo device;
  device.name = "NVIDIA H200";
  return PlanEngine(config, model, memory, topology, Sizes, &device, {}, std::move(pooling));
}

TEST(EnginePlanOnDevice, TakesAShareOfAllMemory) {
  const auto plan = PlanOnDevice({});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->kv_bytes, int64_t{94208 - 256 - 110} * kMiB) << "0.92 of 100 GiB";
  EXPECT_EQ(plan->workspace_bytes, 10 * kMiB) << "the host's logits are not the device's";
  EXPECT_EQ(plan->scheduler.max_num_seqs, 1024);
  EXPECT_EQ(plan->scheduler.max_num_batched_tokens, 8192);
  EXPECT_THAT(MemoryTable(*plan)[6], HasSubstr("on NVIDIA H200"));
  EngineConfig config;
  config.memory_utilization = 0.5;
  EXPECT_EQ(PlanOnDevice(config)->kv_bytes, int64_t{50 * 1024 - 256 - 110} * kMiB);
  config.utilization_of_rest = true;
  EXPECT_EQ(PlanOnDevice(config)->kv_bytes, int64_t{99 * 1024 - 256 - 110} * kMiB / 2);
}

TEST(EnginePlanOnDevice, HasSlotsForTheAdaptersOfAStep) {
  EngineConfig config;
  config.adapters.enabled = true;
  EXPECT_EQ(PlanOnDevice(config)->lora.num_slots, 1);
  EXPECT_EQ(PlanOnDevice(config)->lora.type, ElementType::kBF16);
  config.adapters.modules = {{"a", "/a", ""}, {"b", "/b", ""}};
  EXPECT_EQ(PlanOnDevice(config)->lora.num_slots, 2);
  config.adapters.max_loras = 3;
  EXPECT_EQ(PlanOnDevice(config)->lora.num_slots, 3);
  config.adapters.max_cpu_loras = 9;
  EXPECT_EQ(PlanOnDevice(config)->lora.num_slots, 3) << "the others are in their files";
}

TEST(EnginePlanOnDevice, StepsInFlight) {
  EngineConfig config;
  EXPECT_EQ(PlanOnDevice(config)->scheduler.steps_in_flight, 1);
  config.async_scheduling = true;
  EXPECT_EQ(PlanOnDevice(config)->scheduler.steps_in_flight, 2);
  EXPECT_EQ(PlanOnDevice(config)->scheduler.num_stages, 1) << "decodes are not divided";
  config.pipeline_parallel_size = 2;
  const auto ranks = PlanOnDevice(config);
  EXPECT_EQ(ranks->scheduler.steps_in_flight, 1);
  EXPECT_THAT(ranks->warnings, ::testing::Contains(HasSubstr("async_scheduling")));
  config.pipeline_parallel_size = 1;
  config.speculation.method = SpeculationConfig::Method::kNgram;
  const auto with_speculation = PlanOnDevice(config);
  EXPECT_EQ(with_speculation->scheduler.steps_in_flight, 1);
  EXPECT_THAT(with_speculation->warnings, ::testing::Contains(HasSubstr("async_scheduling")));
  config.speculation = {};
  const auto encoder = PlanOnDevice(config, 99 * 1024 * kMiB, PoolingConfig(), "BertModel");
  ASSERT_TRUE(encoder) << encoder.error().message;
  EXPECT_EQ(encoder->scheduler.steps_in_flight, 1);
  EXPECT_THAT(encoder->warnings, ::testing::Contains(HasSubstr("an encoder's steps")));
  const auto on_cpu = Plan(config);
  EXPECT_EQ(on_cpu->scheduler.steps_in_flight, 1);
  EXPECT_THAT(on_cpu->notes, ::testing::Contains(HasSubstr("async_scheduling changes nothing")));
}

TEST(EnginePlanOnDevice, StepsThatAreRecorded) {
  EngineConfig config;
  EXPECT_TRUE(PlanOnDevice(config)->recorded.sequences.empty());
  config.graphs.records = true;
  config.max_num_seqs = 50;
  const auto plan = PlanOnDevice(config);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(plan->recorded.sequences,
              ::testing::ElementsAre(1, 2, 4, 8, 10, 12, 16, 20, 24, 32, 40, 48, 50));
  EXPECT_TRUE(plan->recorded.pads);
  EXPECT_TRUE(plan->recorded.runs_before);
  EXPECT_THAT(plan->notes, Not(::testing::Contains(HasSubstr("cuda_graphs"))));
  // Memory of graphs is not available to the cache.
  EXPECT_EQ(plan->graph_bytes, 13 * kMiB);
  EXPECT_EQ(plan->kv_bytes, int64_t{94208 - 256 - 110 - 13} * kMiB);
  EXPECT_THAT(MemoryTable(*plan), ::testing::Contains(ContainsRegex("graphs +13.0 MiB +about")));
  config.speculation.method = SpeculationConfig::Method::kNgram;
  const auto speculates = PlanOnDevice(config);
  EXPECT_EQ(speculates->recorded, plan->recorded);
  EXPECT_THAT(speculates->notes,
              ::testing::Contains(HasSubstr("steps that verify proposed tokens")));
  config.speculation = {};
  const auto on_cpu = Plan(config);
  EXPECT_EQ(on_cpu->graph_bytes, 0);
  EXPECT_TRUE(on_cpu->recorded.sequences.empty());
  EXPECT_THAT(on_cpu->notes, ::testing::Contains(HasSubstr("graphs change nothing on a CPU")));
  const auto pools = PlanOnDevice(config, 99 * 1024 * kMiB, PoolingConfig());
  ASSERT_TRUE(pools) << pools.error().message;
  EXPECT_TRUE(pools->recorded.sequences.empty());
  EXPECT_THAT(pools->notes, ::testing::Contains(HasSubstr("nothing for a model that pools")));
  config.pipeline_parallel_size = 2;
  const auto ranks = PlanOnDevice(config);
  ASSERT_TRUE(ranks) << ranks.error().message;
  EXPECT_TRUE(ranks->recorded.sequences.empty());
  EXPECT_THAT(ranks->warnings, ::testing::Contains(HasSubstr("cuda_graphs: devices of several")));
  config.pipeline_parallel_size = 1;
  config.tensor_parallel_size = 2;
  const auto shared = PlanOnDevice(config);
  ASSERT_TRUE(shared) << shared.error().message;
  EXPECT_EQ(shared->recorded, plan->recorded);
  EXPECT_GT(shared->graph_bytes, 0);
  config.exchanges_by_nccl = true;
  const auto by_nccl = PlanOnDevice(config);
  EXPECT_TRUE(by_nccl->recorded.sequences.empty());
  EXPECT_THAT(by_nccl->warnings, ::testing::Contains(HasSubstr("disable_custom_all_reduce")));
  config.exchanges_by_nccl = false;
  config.tensor_parallel_size = 1;
  config.max_num_seqs = 6;
  config.graphs.sizes = {8, 2, 2, 7, 1};
  const auto bounded = PlanOnDevice(config);
  ASSERT_TRUE(bounded) << bounded.error().message;
  EXPECT_THAT(bounded->recorded.sequences, ::testing::ElementsAre(1, 2, 6));
  EXPECT_THAT(bounded->notes, ::testing::Contains(HasSubstr("no step has the 7, 8 sequences")));
}

TEST(GraphPlan, ChoosesSizes) {
  using ::testing::ElementsAre;
  const auto sizes = [](const GraphConfig& config, int64_t max_sequences) {
    std::vector<std::string> notes;
    const RecordedSteps steps = PlanGraphs(config, max_sequences, notes);
    EXPECT_TRUE(std::ranges::is_sorted(steps.sequences));
    EXPECT_EQ(std::ranges::adjacent_find(steps.sequences), steps.sequences.end());
    EXPECT_EQ(steps.pads, config.pads);
    return steps.sequences;
  };
  GraphConfig config;
  EXPECT_THAT(sizes(config, 9), ElementsAre());
  config.records = true;
  EXPECT_THAT(sizes(config, 1), ElementsAre(1));
  EXPECT_THAT(sizes(config, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(sizes(config, 8), ElementsAre(1, 2, 4, 8));
  EXPECT_EQ(sizes(config, 1024).back(), kLargestGraph);
  config.largest = 1024;
  EXPECT_EQ(sizes(config, 2000).back(), 1024);
  config.largest = 9;
  EXPECT_THAT(sizes(config, 2000), ElementsAre(1, 2, 4, 8, 9));
  config.pads = false;
  EXPECT_EQ(sizes(config, 2000).size(), 9U);
  config.largest = 100;
  EXPECT_EQ(sizes(config, 2000).size(), 34U);
  config.sizes = {5, 3};
  EXPECT_THAT(sizes(config, 4), ElementsAre(3));
}

TEST(EnginePlanOnDevice, MemoryThatOthersHoldIsNotTaken) {
  const auto plan = PlanOnDevice({}, 60 * 1024 * kMiB);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(plan.error().param, "gpu_memory_utilization");
  EXPECT_THAT(plan.error().message, HasSubstr("60.00 GiB of NVIDIA H200's 100.00 GiB are free"));
  EngineConfig config;
  config.memory_utilization = 0.5;
  EXPECT_TRUE(PlanOnDevice(config, 60 * 1024 * kMiB));
}

// A DGX Spark of 125 GiB, of which `available` MiB are available.
Result<EnginePlan> PlanOnSpark(const EngineConfig& config, int64_t available) {
  ModelConfig model;
  model.vocab_size = 256;
  model.max_position_embeddings = 1 << 20;
  const MemoryLimits host{.total_bytes = 125 * 1024 * kMiB, .available_bytes = available * kMiB};
  Topology topology;
  topology.core_cpus = {0, 2};
  DeviceInfo device;
  device.name = "NVIDIA GB10";
  return PlanEngine(config, model, SharedMemory(125 * 1024 * kMiB, host), topology, Sizes, &device,
                    host);
}

TEST(EnginePlanOnDevice, AnIntegratedGpuTakesWhatTheHostCanGive) {
  const int64_t fixed = 256 + 110;
  const auto plenty = PlanOnSpark({}, 124 * 1024);
  ASSERT_TRUE(plenty) << plenty.error().message;
  EXPECT_EQ(plenty->kv_bytes, (int64_t{117760} - fixed) * kMiB) << "0.92 of all";
  const auto usual = PlanOnSpark({}, 116 * 1024);
  ASSERT_TRUE(usual) << usual.error().message;
  EXPECT_EQ(usual->kv_bytes, (int64_t{116 * 1024 - 8000} - fixed - 64) * kMiB)
      << "a sixteenth is left to the machine, and the least to requests";
  EXPECT_THAT(usual->notes, Not(::testing::Contains(HasSubstr("shares the memory"))));
  const auto little = PlanOnSpark({}, 100 * 1024);
  ASSERT_TRUE(little) << little.error().message;
  EXPECT_EQ(little->kv_bytes, (int64_t{100 * 1024 - 8000} - fixed - 64) * kMiB);
  EXPECT_THAT(little->notes, ::testing::Contains(HasSubstr("NVIDIA GB10 shares the memory")));
  EXPECT_EQ(little->request_bytes, 1024 * kMiB) << "half of what is left, at most 1 GiB";
  EngineConfig config;
  config.memory_utilization = 0.5;
  EXPECT_EQ(PlanOnSpark(config, 116 * 1024)->kv_bytes, (int64_t{64000} - fixed) * kMiB);
  config.memory_utilization = 0.9;
  const auto refused = PlanOnSpark(config, 100 * 1024);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              HasSubstr("100.00 GiB of NVIDIA GB10's 125.00 GiB are free, but"));
}

TEST(EnginePlanOnDevice, AnIntegratedGpuSharesItsMemoryWithWhatTheCpuKeeps) {
  EngineConfig config;
  const auto without = PlanOnSpark(config, 100 * 1024);
  config.offload.ram_bytes = 4096 * kMiB;
  const auto tiers = PlanOnSpark(config, 100 * 1024);
  ASSERT_TRUE(without && tiers);
  EXPECT_EQ(without->kv_bytes - tiers->kv_bytes, 4096 * kMiB);
  EXPECT_LE(tiers->taken_bytes(), tiers->memory.available_bytes);
  config.offload.ram_bytes = 95 * 1024 * kMiB;
  const auto refused = PlanOnSpark(config, 100 * 1024);
  ASSERT_FALSE(refused) << "a sixteenth is left to the machine";
  EXPECT_EQ(refused.error().param, "kv-offloading-size");
}

TEST(EnginePlanOnDevice, AShareThatLeavesNoCacheSaysWhatTakesIt) {
  EngineConfig config;
  config.memory_utilization = 0.001;
  const auto plan = PlanOnDevice(config);
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message,
              HasSubstr("0.0 MiB is available for it beside 100.0 MiB of weights and 10.0 MiB of "
                        "workspace; raise gpu_memory_utilization"));
  EXPECT_THAT(plan.error().message, Not(HasSubstr("max_model_len to")));
}

TEST(EnginePlanOnDevice, ComputesInBfloat16) {
  EngineConfig config;
  config.activation_format = ModelOptions::ActivationRounding::kCheckpoint;
  EXPECT_EQ(PlanOnDevice(config)->dtype, ElementType::kBF16);
  config.dtype = ElementType::kF32;
  EXPECT_EQ(PlanOnDevice(config).error().param, "dtype");
  config = {};
  config.kv_cache_dtype = ElementType::kF16;
  EXPECT_EQ(PlanOnDevice(config).error().param, "kv_cache_dtype");
  config.kv_cache_dtype = ElementType::kF8E4M3;
  EXPECT_EQ(PlanOnDevice(config)->kv_type, ElementType::kF8E4M3);
}

// The load that tools/gpu_report.sh puts on one H200: of its 150.1 GB, the driver reports 149.5 as
// free.
TEST(EnginePlanOnDevice, Llama70BInFp8OnOneH200) {
  const auto model = LoadModelConfig(SourcePath("benchmarks/llama-3.3-70b-fp8-shape"));
  ASSERT_TRUE(model) << model.error().message;
  const MemoryLimits memory{.total_bytes = 150'100'000'000, .available_bytes = 149'500'000'000};
  DeviceInfo device;
  device.name = "NVIDIA H200";
  device.compute_major = 9;
  EngineConfig config;
  config.dummy_weights = true;
  config.memory_utilization = 0.96;
  config.max_model_len = 8192 + 1024 + 64;
  config.max_num_seqs = 256;
  Topology topology;
  topology.logical_cpus = 4;
  topology.core_cpus = {0, 2};
  const auto plan_model = [&](const ModelConfig& planned, const ModelOptions& options, int) {
    return PlanDeviceModel(planned, options, device);
  };
  const auto plan = PlanEngine(config, *model, memory, topology, plan_model, &device);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->kv_type, ElementType::kF8E4M3);
  EXPECT_EQ(plan->scheduler.max_num_batched_tokens, 8192);
  // Computed by hand: E4M3 products with a factor for each of their rows, both tables in BF16,
  // norms, and padding; 163,840 bytes of keys and values per token.
  const int64_t products = 80 * int64_t{8192} * (10240 + 8192 + 57344 + 28672);
  const int64_t factors = 80 * int64_t{4} * (10240 + 8192 + 57344 + 8192);
  const int64_t tables = 2 * int64_t{2} * 128256 * 8192, norms = 161 * int64_t{4} * 8192;
  EXPECT_NEAR(static_cast<double>(plan->weight_bytes),
              static_cast<double>(products + factors + tables + norms), 1e5);
  EXPECT_EQ(plan->kv_bytes_per_block, 16 * int64_t{163'840});
  EXPECT_LT(plan->workspace_bytes, int64_t{2'000'000'000});
  const int64_t tokens = plan->num_blocks * 16;
  const int64_t fixed = plan->weight_bytes + plan->workspace_bytes + 256 * kMiB;
  EXPECT_NEAR(static_cast<double>(tokens), (0.96 * 150.1e9 - static_cast<double>(fixed)) / 163'840,
              32);
  EXPECT_GE(tokens / 9216, 45) << "sequences of 8,192 tokens and answers of 1,024, at once";
  RecordProperty("tokens", static_cast<int>(tokens));
  RecordProperty("workspace_mib", static_cast<int>(plan->workspace_bytes / kMiB));
}

TEST(EnginePlan, AModelThatTheNodesCannotDivideHasOneRank) {
  ModelConfig model;
  model.vocab_size = 256;
  model.max_position_embeddings = 1024;
  model.spec.vocab_size = 256;
  model.spec.hidden_size = 64;
  LayerSpec layer;
  layer.attention.num_heads = layer.attention.num_kv_heads = 1;
  model.spec.layers = {layer};
  MemoryLimits memory;
  memory.total_bytes = memory.available_bytes = 4000 * kMiB;
  Topology topology;
  topology.logical_cpus = 4;
  topology.core_cpus = {0, 1, 2, 3};
  topology.node_cpus = {{0, 1}, {2, 3}};
  EngineConfig config;
  config.tensor_parallel_size = 2;
  const auto plan = PlanEngine(config, model, memory, topology, Sizes);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->ranks.num_ranks(), 1);
  EXPECT_EQ(plan->num_threads, 4);
  EXPECT_THAT(plan->warnings[0], HasSubstr("one rank computes with all threads: "));
  EXPECT_THAT(plan->warnings[0], HasSubstr("the model has 1 query heads to divide"));
  config.exact_ranks = true;
  const auto exact = PlanEngine(config, model, memory, topology, Sizes);
  ASSERT_FALSE(exact);
  EXPECT_EQ(exact.error().param, "tensor_parallel_size");
}

}  // namespace
}  // namespace sluice
