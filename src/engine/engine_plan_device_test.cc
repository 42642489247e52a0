#include "engine/engine_plan.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/source_path_testing.h"
#include "engine/engine_plan_testing.h"
#include "engine/shared_memory.h"
#include "models/device/device_model.h"

namespace sluice {
namespace {

using plan_testing::kMiB;
using plan_testing::Plan;
using plan_testing::Sizes;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

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
  EXPECT_THAT(on_cpu->notes, ::testing::Contains(HasSubstr("async_scheduling has no effect")));
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
  // Memory for graphs is not available to the cache.
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
  EXPECT_THAT(on_cpu->notes, ::testing::Contains(HasSubstr("graphs have no effect on a CPU")));
  const auto pools = PlanOnDevice(config, 99 * 1024 * kMiB, PoolingConfig());
  ASSERT_TRUE(pools) << pools.error().message;
  EXPECT_TRUE(pools->recorded.sequences.empty());
  EXPECT_THAT(pools->notes, ::testing::Contains(HasSubstr("no effect for a pooling model")));
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
  config.graphs.is_default = true;
  const auto by_default = PlanOnDevice(config);
  EXPECT_THAT(by_default->warnings, Not(::testing::Contains(HasSubstr("cuda_graphs"))));
  EXPECT_THAT(by_default->notes, ::testing::Contains(HasSubstr("disable_custom_all_reduce")));
  config.graphs.is_default = false;
  config.exchanges_by_nccl = false;
  config.tensor_parallel_size = 1;
  config.max_num_seqs = 6;
  config.graphs.sizes = {8, 2, 2, 7, 1};
  const auto bounded = PlanOnDevice(config);
  ASSERT_TRUE(bounded) << bounded.error().message;
  EXPECT_THAT(bounded->recorded.sequences, ::testing::ElementsAre(1, 2, 6));
  EXPECT_THAT(bounded->notes,
              ::testing::Contains(HasSubstr("cudagraph_capture_sizes contains 7, 8")));
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
  // Computed by hand: E4M3 weight matrices with a scale per row, both embedding tables in BF16,
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

}  // namespace
}  // namespace sluice
