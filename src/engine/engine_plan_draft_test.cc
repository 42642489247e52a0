#include "engine/engine_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_plan_testing.h"

namespace sluice {
namespace {

using plan_testing::kMiB;
using plan_testing::Sizes;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

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
  // K and V of 16 tokens in 2 layers with 2 heads of 64 at 2 bytes. The target's block has 1 MiB.
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
                    HasSubstr("or omit the draft model")));
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
  EXPECT_THAT(refusal(PlanWithDraft(draft)), HasSubstr("BertModel generates no tokens"));
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
              HasSubstr("not on NVIDIA H200"));
}

}  // namespace
}  // namespace sluice
