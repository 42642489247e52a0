#include "models/kv_cache.h"

#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "models/model_config.h"
#include "models/model_testing.h"

namespace sluice {
namespace {

std::vector<AttentionSpan> Repeat(const std::vector<AttentionSpan>& pattern, int times) {
  std::vector<AttentionSpan> layers;
  for (int i = 0; i < times; ++i) layers.insert(layers.end(), pattern.begin(), pattern.end());
  return layers;
}

TEST(KvGroups, LayersThatSeeTheSameAreOneGroup) {
  for (const AttentionSpan span : {AttentionSpan{}, AttentionSpan{.window = 128}}) {
    const KvGroups groups = KvGroups::For(Repeat({span}, 5), 1000);
    EXPECT_EQ(groups.num_groups(), 1);
    EXPECT_EQ(groups.spans[0], AttentionSpan());
    EXPECT_EQ(groups.places[3].slot, 3);
  }
}

// Llama 4 Scout: every fourth layer attends to all positions.
TEST(KvGroups, GroupsAreEquallyLargeAndTheFirstKeepsEverything) {
  const AttentionSpan local{.chunk = 8192};
  const KvGroups groups = KvGroups::For(Repeat({local, local, local, {}}, 12), 100000);
  ASSERT_EQ(groups.num_groups(), 4);
  EXPECT_EQ(groups.layers_per_group, 12);
  EXPECT_EQ(groups.spans[0], AttentionSpan());
  for (int group = 1; group < 4; ++group)
    EXPECT_EQ(groups.spans[static_cast<size_t>(group)], local);
  std::vector<std::vector<bool>> taken(4, std::vector<bool>(12));
  for (size_t layer = 0; layer < 48; ++layer) {
    const auto [group, slot] = groups.places[layer];
    EXPECT_EQ(group == 0, layer % 4 == 3);
    EXPECT_FALSE(taken[static_cast<size_t>(group)][static_cast<size_t>(slot)]);
    taken[static_cast<size_t>(group)][static_cast<size_t>(slot)] = true;
  }
}

TEST(KvGroups, ALimitBeyondTheContextIsNone) {
  const AttentionSpan local{.chunk = 8192};
  EXPECT_EQ(KvGroups::For(Repeat({local, {}}, 2), 8192).num_groups(), 1);
  EXPECT_EQ(KvGroups::For(Repeat({local, {}}, 2), 8193).num_groups(), 2);
}

TEST(KvGroups, WhereNoLayerSeesEverythingThoseOfTheFirstKeepIt) {
  const AttentionSpan near{.window = 16}, far{.window = 64};
  const KvGroups groups = KvGroups::For(Repeat({near, far, far}, 2), 1000);
  ASSERT_EQ(groups.num_groups(), 3);
  EXPECT_EQ(groups.spans[0], AttentionSpan());
  EXPECT_EQ(groups.spans[1], far);
  EXPECT_EQ(groups.places[0].group, 0);
}

// The layer counts of Gemma 3: their greatest common divisors, 2 and 1, would result in 31 and 34
// groups.
TEST(KvGroups, UnequalNumbersOfLayersAreFilledUpInsteadOfMakingManyGroups) {
  struct Case {
    int locals, globals;
    int64_t groups, layers_per_group;
  };
  for (const Case& expected : {Case{52, 10, 7, 10}, Case{29, 5, 7, 5}, Case{22, 4, 7, 4},
                               Case{15, 3, 6, 3}, Case{20, 1, 8, 3}}) {
    std::vector<AttentionSpan> layers;
    for (int i = 0; i < expected.locals; ++i) layers.push_back({.window = 1024});
    for (int i = 0; i < expected.globals; ++i)
      layers.insert(layers.begin() + i * (expected.locals / expected.globals + 1) + 1,
                    AttentionSpan{});
    const KvGroups groups = KvGroups::For(layers, 131072);
    SCOPED_TRACE(expected.locals);
    EXPECT_EQ(groups.num_groups(), expected.groups);
    EXPECT_LE(groups.num_groups(), KvGroups::kMostGroups);
    EXPECT_EQ(groups.layers_per_group, expected.layers_per_group);
    ASSERT_EQ(groups.num_layers(), expected.locals + expected.globals);
    std::set<std::pair<int, int>> taken;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const auto [group, slot] = groups.places[layer];
      EXPECT_EQ(groups.spans[static_cast<size_t>(group)], layers[layer]);
      EXPECT_LT(slot, groups.layers_per_group);
      EXPECT_TRUE(taken.emplace(group, slot).second) << layer;
    }
  }
}

// One group per span, even if there are many spans.
TEST(KvGroups, EverySpanHasAGroup) {
  std::vector<AttentionSpan> layers = {{}};
  for (int32_t window = 16; window < 32; ++window) layers.push_back({.window = window});
  const KvGroups groups = KvGroups::For(layers, 1000);
  EXPECT_EQ(groups.num_groups(), 17);
  EXPECT_EQ(groups.layers_per_group, 1);
}

TEST(KvCache, GroupsOfFewerLayersUseTheSameBlocks) {
  const kernels::KvLayout layout{
      .num_kv_heads = 2, .head_dim = 32, .block_size = 16, .type = ElementType::kBF16};
  std::vector<AttentionSpan> layers(3);
  layers.resize(26, AttentionSpan{.window = 20});
  const KvGroups unequal = KvGroups::For(layers, 1000);
  EXPECT_EQ(unequal.num_groups() * unequal.layers_per_group, 28)
      << "two more than there are layers";
  const auto cache = KvCache::Allocate(layout, unequal, 10);
  ASSERT_TRUE(cache);
  EXPECT_EQ(static_cast<int64_t>(cache->slots().size()), unequal.layers_per_group);
  EXPECT_EQ(cache->layer(25).k, cache->slots()[static_cast<size_t>(unequal.places[25].slot)].k);
}

TEST(KvCache, LayersOfDifferentGroupsShareTheArraysOfTheirSlot) {
  kernels::KvLayout layout{
      .num_kv_heads = 2, .head_dim = 32, .block_size = 16, .type = ElementType::kF8E4M3};
  const AttentionSpan local{.chunk = 64};
  const KvGroups groups = KvGroups::For(Repeat({local, {}}, 3), 1000);
  const auto cache = KvCache::Allocate(layout, groups, 10);
  ASSERT_TRUE(cache);
  EXPECT_EQ(cache->num_groups(), 2);
  EXPECT_EQ(cache->layer(0).k, cache->layer(1).k);
  EXPECT_NE(cache->layer(0).k, cache->layer(2).k);
  EXPECT_NE(cache->group(0), cache->group(1));
  EXPECT_EQ(static_cast<std::byte*>(cache->layer(0).v) - static_cast<std::byte*>(cache->layer(0).k),
            10 * layout.BlockElements());
}

// Gemma 4: wider heads in global layers, and upper layers that have no keys of their own.
TEST(KvCache, LayersOfOtherHeadsAndLayersThatShareKeys) {
  DecoderSpec spec;
  spec.layers.resize(5);
  for (const size_t layer : {0, 1, 2, 3, 4}) {
    AttentionSpec& attention = spec.layers[layer].attention;
    const bool is_global = layer == 2 || layer == 4;
    attention.num_heads = 4;
    attention.num_kv_heads = is_global ? 1 : 2;
    attention.head_dim = is_global ? 128 : 32;
    attention.span.window = is_global ? 0 : 20;
  }
  spec.layers[3].attention.kv_layer = 1;
  spec.layers[4].attention.kv_layer = 2;
  EXPECT_FALSE(spec.HasUniformHeads());
  EXPECT_EQ(spec.NumKvLayers(), 3);
  const KvGroups groups = KvGroups::For(spec, 1000);
  EXPECT_EQ(groups.num_layers(), 5);
  const kernels::KvLayout layout{
      .num_kv_heads = 1, .head_dim = 128, .block_size = 16, .type = ElementType::kBF16};
  const auto cache = KvCache::Allocate(layout, groups, 10);
  ASSERT_TRUE(cache);
  for (const auto& [layer, from] : {std::pair{3, 1}, std::pair{4, 2}}) {
    EXPECT_EQ(cache->layer(layer).k, cache->layer(from).k);
    EXPECT_EQ(cache->group(layer), cache->group(from));
  }
  EXPECT_NE(cache->layer(0).k == cache->layer(1).k, cache->group(0) == cache->group(1));
  const kernels::KvLayout& narrow = cache->layer(0).layout;
  EXPECT_EQ(narrow.num_kv_heads, 2);
  EXPECT_EQ(narrow.head_dim, 32);
  EXPECT_EQ(narrow.BlockStride(), layout.BlockElements()) << "a block is of any group";
  EXPECT_EQ(cache->layer(2).layout.BlockStride(), layout.BlockElements());
  EXPECT_EQ(KvGroups::Uniform(spec).layers_per_group, 3);
}

// If a model has layers with a window and layers with states, all positions are kept.
TEST(KvGroups, ModelsThatKeepStatesHaveOne) {
  for (const char* name : {"tiny-lfm3", "tiny-lara-mini"}) {
    const auto config = LoadModelConfig(testing::DataFolder(name));
    ASSERT_TRUE(config) << config.error().message;
    const KvGroups groups = KvGroups::For(config->spec, 4096);
    EXPECT_EQ(groups.num_groups(), 1) << name;
    EXPECT_TRUE(groups.spans.front().sees_all()) << name;
    EXPECT_EQ(groups.layers_per_group, config->spec.NumKvLayers()) << name;
  }
}

TEST(KvCache, LayersWithoutAttentionHaveNoKeysButAState) {
  DecoderSpec spec;
  spec.layers.resize(5);
  for (const size_t layer : {1, 3}) {
    spec.layers[layer].attention.num_heads = 4;
    spec.layers[layer].attention.num_kv_heads = 2;
    spec.layers[layer].attention.head_dim = 32;
  }
  for (const size_t layer : {0, 2, 3}) {  // layer 3 has attention and a mixer, layer 4 neither
    spec.layers[layer].mixer = MixerSpec{.kind = MixerSpec::Kind::kDeltaRule,
                                         .module = "linear_attn",
                                         .conv_width = 4,
                                         .num_heads = 4,
                                         .num_key_heads = 2,
                                         .head_dim = 8,
                                         .key_dim = 5};
  }
  EXPECT_TRUE(spec.HasUniformHeads());
  EXPECT_EQ(spec.NumKvLayers(), 2);
  const KvGroups groups = KvGroups::For(spec, 1000);
  EXPECT_EQ(groups.num_groups(), 1);
  EXPECT_EQ(groups.layers_per_group, 2);
  const kernels::KvLayout layout{
      .num_kv_heads = 2, .head_dim = 32, .block_size = 16, .type = ElementType::kBF16};
  auto cache = KvCache::Allocate(layout, groups, 10);
  ASSERT_TRUE(cache);
  EXPECT_EQ(cache->layer(0).k, nullptr);
  EXPECT_EQ(cache->layer(0).layout.block_size, 16);
  EXPECT_NE(cache->layer(1).k, nullptr);
  EXPECT_NE(cache->layer(1).k, cache->layer(3).k);

  const StateLayout states = StateLayout::For(spec);
  // Three layers, each with a tail [3, 2 * 10 + 32] and a matrix [4, 5, 8], each padded to a
  // multiple of 16 numbers (one cache line).
  EXPECT_EQ(states.slot_bytes(), 3 * (160 + 160) * 4);
  ASSERT_TRUE(cache->AllocateStates(states, 3));
  const StateCache& slots = cache->states();
  EXPECT_EQ(slots.num_slots(), 3);
  slots.tail(0, 1)[0] = 1;
  slots.matrix(3, 1)[159] = 2;
  slots.Copy(1, 2);
  slots.Clear(1);
  EXPECT_EQ(slots.tail(0, 1)[0], 0);
  EXPECT_EQ(slots.tail(0, 2)[0], 1);
  EXPECT_EQ(slots.matrix(3, 2)[159], 2);
  const Status refused = cache->AllocateStates(states, int64_t{1} << 60);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
}

TEST(KvCache, OverMemoryOfTheCallerIsLaidOutAsItsOwn) {
  const kernels::KvLayout layout{
      .num_kv_heads = 2, .head_dim = 32, .block_size = 16, .type = ElementType::kBF16};
  const KvGroups groups = KvGroups::For(Repeat({AttentionSpan{.chunk = 64}, {}}, 3), 1000);
  const auto own = KvCache::Allocate(layout, groups, 10);
  ASSERT_TRUE(own);
  // Nothing reads or writes this address.
  auto* const memory = reinterpret_cast<std::byte*>(uintptr_t{1} << 32);
  const KvCache wrapped = KvCache::Wrap(layout, groups, 10, memory);
  EXPECT_EQ(wrapped.num_blocks(), 10);
  for (int64_t layer = 0; layer < groups.num_layers(); ++layer) {
    EXPECT_EQ(wrapped.group(layer), own->group(layer));
    EXPECT_EQ(
        static_cast<std::byte*>(wrapped.layer(layer).k) - memory,
        static_cast<std::byte*>(own->layer(layer).k) - static_cast<std::byte*>(own->layer(0).k));
    EXPECT_EQ(
        static_cast<std::byte*>(wrapped.layer(layer).v) - memory,
        static_cast<std::byte*>(own->layer(layer).v) - static_cast<std::byte*>(own->layer(0).k));
  }
}

}  // namespace
}  // namespace sluice
