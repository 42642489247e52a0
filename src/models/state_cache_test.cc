// Tests the memory of recurrent states: the planned bytes, and the bytes that the process takes.
#include "models/state_cache.h"

#include <unistd.h>
#include <cstdio>
#include <memory>

#include <gtest/gtest.h>

#include "base/json_testing.h"
#include "models/kv_layout.h"
#include "models/model_config.h"
#include "models/model_testing.h"

namespace sluice {
namespace {

int64_t ResidentBytes() {
  long long pages = 0;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/statm", "r"),
                                                             &std::fclose);
  EXPECT_TRUE(file != nullptr && std::fscanf(file.get(), "%*d %lld", &pages) == 1);
  return pages * ::sysconf(_SC_PAGESIZE);
}

// Layers of Qwen3.5 0.8B, LFM2 1.2B and Granite 4.0-H Micro; they differ from the defaults of the
// configuration classes.
constexpr const char* kConfigs[] = {
    R"({"model_type": "qwen3_5_text", "hidden_size": 1024, "num_hidden_layers": 24,
        "intermediate_size": 3584, "num_attention_heads": 8, "num_key_value_heads": 2,
        "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": 16})",
    R"({"model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8,
        "full_attn_idxs": [2, 5, 8, 10, 12, 14]})",
    R"({"model_type": "granitemoehybrid", "hidden_size": 2048, "num_hidden_layers": 4,
        "num_attention_heads": 32, "num_key_value_heads": 8, "shared_intermediate_size": 8192,
        "mamba_n_heads": 64, "num_local_experts": 0,
        "layer_types": ["mamba", "mamba", "attention", "mamba"]})"};

TEST(StateCacheTest, TheProcessTakesWhatThePlanSays) {
  constexpr int64_t kBytes = int64_t{96} << 20;
  for (const char* text : kConfigs) {
    const auto config = ParseModelConfig(testing::Json(text));
    ASSERT_TRUE(config) << config.error().message;
    const auto memory =
        PlanModel(*config, testing::SmallOptions(ElementType::kBF16, ElementType::kBF16), 1);
    ASSERT_TRUE(memory) << memory.error().message;
    const StateLayout layout = StateLayout::For(config->spec);
    ASSERT_GT(layout.slot_bytes(), 0) << text;
    EXPECT_EQ(memory->state_bytes_per_slot, layout.slot_bytes()) << text;
    const int64_t slots = kBytes / layout.slot_bytes() + 1;
    const int64_t before = ResidentBytes();
    const auto cache = StateCache::Allocate(layout, slots);
    ASSERT_TRUE(cache) << cache.error().message;
    for (int32_t slot = 0; slot < slots; ++slot) cache->Clear(slot);
    const double taken = static_cast<double>(ResidentBytes() - before);
    const double planned = static_cast<double>(memory->state_bytes_per_slot * slots);
    EXPECT_NEAR(taken / planned, 1, 0.01) << text;
  }
}

}  // namespace
}  // namespace sluice
