#include "models/shard.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/stage_rows.h"
#include "models/weights.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

AttentionSpec Heads(int num_heads, int num_kv_heads) {
  AttentionSpec spec;
  spec.num_heads = num_heads;
  spec.num_kv_heads = num_kv_heads;
  spec.head_dim = 32;
  return spec;
}

DecoderSpec SmallSpec(size_t num_layers) {
  DecoderSpec spec;
  spec.vocab_size = 100;
  spec.hidden_size = 96;
  LayerSpec layer;
  layer.attention = Heads(8, 2);
  layer.mlp = {.module = "mlp", .intermediate_size = 200};
  spec.layers.assign(num_layers, layer);
  return spec;
}

// Checks that the ranks' ranges are contiguous and cover everything, and that none is empty.
void ExpectCover(const std::vector<RowRange>& ranges, int64_t count) {
  int64_t next = 0;
  for (const RowRange& range : ranges) {
    EXPECT_EQ(range.begin, next);
    EXPECT_GT(range.size(), 0);
    next = range.end;
  }
  EXPECT_EQ(next, count);
}

TEST(ShardTest, RowsAreCutIntoWholePanelsWhereThereAreEnough) {
  for (const int64_t count : {8, 100, 128, 1000, 32000, 151936}) {
    for (const int size : {1, 2, 3, 5, 7, 8}) {
      std::vector<RowRange> ranges;
      for (int rank = 0; rank < size; ++rank) {
        ranges.push_back(CutRows(count, rank, size));
        if (count >= 16 * size) {
          EXPECT_EQ(ranges.back().begin % 16, 0);
        }
      }
      ExpectCover(ranges, count);
    }
  }
}

TEST(ShardTest, HeadsStayWithTheirKeysAndValues) {
  for (const auto& [heads, kv_heads] : {std::pair{8, 2}, {8, 8}, {32, 8}, {12, 1}, {9, 3}}) {
    const AttentionSpec spec = Heads(heads, kv_heads);
    for (int size = 1; size <= heads; ++size) {
      std::vector<RowRange> q, given;
      std::vector<bool> held(static_cast<size_t>(kv_heads));
      for (int rank = 0; rank < size; ++rank) {
        const HeadCut cut = CutHeads(spec, rank, size);
        q.push_back(cut.q);
        if (const RowRange first = FirstHeldKeys(spec, rank, size); first.size() > 0) {
          EXPECT_EQ(first, cut.kv);
          given.push_back(first);
        }
        // Attention requires this: query head h of the rank uses KV head h / (q / kv).
        ASSERT_EQ(cut.q.size() % cut.kv.size(), 0);
        const int64_t group = cut.q.size() / cut.kv.size();
        for (int64_t h = 0; h < cut.q.size(); ++h) {
          EXPECT_EQ(cut.kv.begin + h / group, (cut.q.begin + h) / (heads / kv_heads))
              << heads << " heads, " << kv_heads << " KV heads, rank " << rank << " of " << size;
        }
        for (int64_t h = cut.kv.begin; h < cut.kv.end; ++h) held[static_cast<size_t>(h)] = true;
      }
      ExpectCover(q, heads);
      ExpectCover(given, kv_heads);
      EXPECT_EQ(std::count(held.begin(), held.end(), false), 0);
    }
  }
}

TEST(ShardTest, LayersAreCutWithTheFewestInTheFirstStage) {
  EXPECT_EQ(CutLayers(7, 0, 3), (RowRange{0, 2}));
  EXPECT_EQ(CutLayers(7, 1, 3), (RowRange{2, 4}));
  EXPECT_EQ(CutLayers(7, 2, 3), (RowRange{4, 7}));
}

TEST(ShardTest, MoreRanksThanPartsAreRefused) {
  const DecoderSpec spec = SmallSpec(4);
  EXPECT_TRUE(CheckRanks(spec, 8, 4));
  const Status heads = CheckRanks(spec, 9, 1);
  ASSERT_FALSE(heads);
  EXPECT_EQ(heads.error().message,
            "tensor_parallel_size 9: the model has 8 query heads to divide; lower it to at most 8");
  EXPECT_EQ(heads.error().param, "tensor_parallel_size");
  EXPECT_THAT(CheckRanks(spec, 1, 5).error().message,
              HasSubstr("pipeline_parallel_size 5: the model has 4 layers to divide"));
  EXPECT_TRUE(CheckRanks(DecoderSpec(), 1, 1));
  EXPECT_THAT(CheckRanks(DecoderSpec(), 2, 1).error().message,
              HasSubstr("an encoder has only one rank"));
  DecoderSpec narrow = spec;
  narrow.layers.back().mlp.intermediate_size = 4;
  EXPECT_THAT(CheckRanks(narrow, 5, 1).error().message, HasSubstr("4 rows in an MLP"));
  DecoderSpec experts = spec;
  experts.layers.front().moe.emplace().intermediate_size = 4;
  EXPECT_THAT(CheckRanks(experts, 5, 1).error().message, HasSubstr("4 rows in an expert"));
  DecoderSpec few_heads = spec;
  few_heads.layers.back().attention.num_heads = 4;
  EXPECT_THAT(CheckRanks(few_heads, 5, 1).error().message, HasSubstr("4 query heads"));
  DecoderSpec embeddings = spec;
  embeddings.layer_embeddings = {.width = 4, .vocab_size = 100};
  EXPECT_THAT(CheckRanks(embeddings, 5, 1).error().message,
              HasSubstr("4 rows in the embedding of a layer"));
}

// Every stored row of every matrix is on at least one rank. It is on only one, except for routers,
// and for keys and values that several query heads share.
TEST(ShardTest, EveryRowIsHeldOnce) {
  DecoderSpec spec = SmallSpec(5);
  spec.layers.front().moe = MoeSpec{.router_module = "mlp.gate",
                                    .experts_module = "mlp.experts",
                                    .num_experts = 3,
                                    .top_k = 1,
                                    .intermediate_size = 48};
  for (const auto& [tensor_size, num_stages] : {std::pair{1, 2}, {3, 1}, {4, 2}, {8, 5}}) {
    std::map<std::string, std::vector<int>> held;
    for (int rank = 0; rank < tensor_size * num_stages; ++rank) {
      DecoderWeights weights;
      const ParameterList list =
          ListParameters(spec, weights, RankPlace::Of(rank, tensor_size, num_stages));
      for (const MatrixParameter& matrix : list.matrices) {
        for (const ParameterPart& part : matrix.parts) {
          std::vector<int>& counts = held[part.name];
          counts.resize(static_cast<size_t>(part.rows));
          for (int64_t row = part.held_rows().begin; row < part.held_rows().end; ++row)
            ++counts[static_cast<size_t>(row)];
        }
      }
    }
    DecoderWeights weights;
    size_t num_parts = 0;
    for (const MatrixParameter& matrix : ListParameters(spec, weights).matrices)
      num_parts += matrix.parts.size();
    EXPECT_EQ(held.size(), num_parts);
    for (const auto& [name, counts] : held) {
      const bool is_shared = name.ends_with("k_proj") || name.ends_with("v_proj");
      for (const int count : counts) {
        if (name.ends_with("mlp.gate"))
          EXPECT_EQ(count, tensor_size);
        else if (is_shared)
          EXPECT_GE(count, 1) << name;
        else
          EXPECT_EQ(count, 1) << name;
      }
    }
  }
}

TEST(ShardTest, AStagesCacheHasItsLayersAlone) {
  // Layers with two spans in groups of two: 0 1 | 2 3 and 4 5.
  const DecoderSpec spec = SmallSpec(6);
  KvGroups groups;
  groups.spans = {{}, {.window = 64}, {.window = 64}};
  groups.places = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {2, 0}, {2, 1}};
  groups.layers_per_group = 2;
  const KvGroups first = ShareGroups(groups, spec, RankPlace::Of(0, 1, 3));
  const KvGroups rest = ShareGroups(groups, spec, RankPlace::Of(1, 1, 2));
  EXPECT_EQ(first.layers_per_group, 1);
  EXPECT_EQ(rest.layers_per_group, 2);
  EXPECT_EQ(first.num_groups(), 3);
  EXPECT_EQ(rest.places[0].group, 1);
  EXPECT_EQ(rest.places[0].slot, 0) << "the first of its group in this stage";
  EXPECT_EQ(rest.places[2].slot, 1);
}

// Layers 3, 4 and 5 use the keys and values of layers 0, 1 and 0. Layers 0 and 1 have different
// heads.
DecoderSpec SharedKeysSpec() {
  DecoderSpec spec = SmallSpec(6);
  spec.layer_embeddings = {.width = 8, .vocab_size = 100};
  for (const int layer : {1, 4}) {
    AttentionSpec& attention = spec.layers[static_cast<size_t>(layer)].attention;
    attention.head_dim = 64;
    attention.num_kv_heads = 4;
    attention.span.window = 16;
  }
  spec.layers[3].attention.kv_layer = 0;
  spec.layers[4].attention.kv_layer = 1;
  spec.layers[5].attention.kv_layer = 0;
  return spec;
}

TEST(ShardTest, AStageHasRoomForTheKeysOfOthersThatItReads) {
  const DecoderSpec spec = SharedKeysSpec();
  const KvGroups groups = KvGroups::For(spec, 4096);
  const KvGroups last = ShareGroups(groups, spec, RankPlace::Of(4, 2, 3));
  ASSERT_EQ(last.places.size(), 2U);
  EXPECT_EQ(last.layers_per_group, 1) << "of each span one layer";
  EXPECT_NE(last.places[0].group, last.places[1].group);
  EXPECT_EQ(last.heads[0].head_dim, 64);
  EXPECT_EQ(last.heads[0].num_kv_heads, 2) << "of four, divided by two ranks";
  EXPECT_EQ(last.heads[1].num_kv_heads, 1);
  EXPECT_EQ(NumHeldKvLayers(spec, RankPlace::Of(4, 2, 3)), 2);
  EXPECT_EQ(NumHeldKvLayers(spec, RankPlace::Of(2, 2, 3)), 2) << "of layer 2, and of layer 0";
  EXPECT_EQ(NumHeldKvLayers(spec, {}), 3);
}

TEST(ShardTest, MixersAreCutByKeyHeads) {
  DecoderSpec spec = SmallSpec(4);
  spec.layers[2].attention.num_heads = spec.layers[2].attention.num_kv_heads = 0;
  spec.layers[2].mixer = MixerSpec{.kind = MixerSpec::Kind::kDeltaRule,
                                   .module = "linear_attn",
                                   .conv_width = 4,
                                   .num_heads = 12,
                                   .num_key_heads = 6,
                                   .head_dim = 8,
                                   .key_dim = 4};
  const MixerSpec& mixer = *spec.layers[2].mixer;
  EXPECT_EQ(CutMixer(mixer, 1, 3).key_heads.begin, 2);
  EXPECT_EQ(CutMixer(mixer, 1, 3).heads.begin, 4);
  EXPECT_EQ(CutMixer(mixer, 1, 3).heads.end, 8);
  EXPECT_EQ(CutMixer(mixer, 1, 4).heads.size(), 12) << "all, as four do not divide six";
  const DecoderSpec share = ShareOf(spec, RankPlace::Of(2, 2, 2));
  EXPECT_EQ(share.layers[0].mixer->num_heads, 6);
  EXPECT_EQ(StateLayout::For(share).slot_bytes(), (3 * (2 * 12 + 48) + 8 + 6 * 4 * 8) * 4);
  const KvGroups groups = ShareGroups(KvGroups::Uniform(spec), spec, RankPlace::Of(2, 2, 2));
  EXPECT_EQ(groups.places[0].slot, -1);
  EXPECT_EQ(groups.places[1].slot, 0);
  EXPECT_EQ(groups.layers_per_group, 1);
  EXPECT_EQ(NumHeldKvLayers(spec, RankPlace::Of(2, 2, 2)), 1);
}

TEST(ShardTest, WhatStagesHandOnIsReadByLaterOnes) {
  const DecoderSpec spec = SharedKeysSpec();
  const auto rows_of = [&](int rank) { return StageRows::For(spec, RankPlace::Of(rank, 2, 3)); };
  const StageRows first = rows_of(0), middle = rows_of(2), last = rows_of(4);
  // The row consists of the residual, embeddings of four layers, one KV head of layer 0 and two KV
  // heads of layer 1.
  EXPECT_EQ(first.handed_on(false), 96 + 4 * 8 + 2 * 32 + 2 * 128);
  EXPECT_EQ(middle.received(), first.handed_on(false));
  EXPECT_EQ(last.received(), middle.handed_on(false));
  EXPECT_EQ(last.handed_on(true), 96);
  EXPECT_EQ(first.num_received, 0U);
  ASSERT_EQ(middle.num_received, 2U);
  EXPECT_EQ(middle.keys[0].user, 1) << "layer 3";
  EXPECT_EQ(middle.keys[1].user, -1) << "handed on alone";
  EXPECT_EQ(last.keys[1].user, 0);
  EXPECT_EQ(last.Find(1)->first, 96 + 4 * 8 + 2 * 32);
  EXPECT_EQ(last.Find(2), nullptr);
}

}  // namespace
}  // namespace sluice
