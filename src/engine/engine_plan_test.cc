#include "engine/engine_plan.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/source_path_testing.h"
#include "engine/engine_plan_testing.h"
#include "engine/kv_tiers.h"
#include "engine/plan_tower.h"

namespace sluice {
namespace {

using plan_testing::kMiB;
using plan_testing::Plan;
using plan_testing::Sizes;
using ::testing::AllOf;
using ::testing::HasSubstr;

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
  EXPECT_THAT(Plan(config).error().message, HasSubstr("are too small for a block"));
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

// Rank 0 of several processes plans the tiers of all ranks at the time when the caches are planned.
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
      0.25;  // 1000 MiB, of which weights and workspace take 110 MiB and logits a small part
  const auto plan = Plan(config);
  ASSERT_TRUE(plan);
  EXPECT_LE(plan->total_bytes(), 1000 * kMiB);
  EXPECT_GT(plan->num_blocks, 850);
  config.memory_utilization = 0.9;  // of 4000 MiB, but only 2000 MiB are free
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
              ::testing::Contains(HasSubstr("8 in total: fewer engines would be faster")));
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
  // A cache that could take all free memory leaves some of it for requests.
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
