// Compares logits of text and images with transformers in float32, for one checkpoint per family.
// Rows and logits have the same bits however a prompt is divided.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/tower/vision_runner_testing.h"

namespace sluice {
namespace {

using testing::DataFolder;
using testing::kVisionCheckpoints;
using testing::LogitRows;
using testing::TestName;
using testing::VisionCase;
using testing::VisionRunner;

class TowerGoldenTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Checkpoints, TowerGoldenTest, ::testing::ValuesIn(kVisionCheckpoints),
                         TestName);

INSTANTIATE_TEST_SUITE_P(WideCheckpoints, TowerGoldenTest,
                         ::testing::ValuesIn(testing::kWideVisionCheckpoints), TestName);

TEST_P(TowerGoldenTest, AgreesWithTransformers) {
  VisionRunner runner(GetParam(), ElementType::kF32, 2);
  for (const VisionCase& golden : testing::ReadVisionGolden(DataFolder(GetParam()))) {
    const double rms = WorstRms(golden, runner.Run(golden, 512));
    RecordProperty(fmt::format("rms_{}", golden.images.size()), fmt::format("{:.2g}", rms));
    EXPECT_LE(rms, 1e-4) << golden.images.size() << " images";
  }
}

// Measured: at most 0.03, the same as transformers in bfloat16.
TEST_P(TowerGoldenTest, StaysNearInBf16) {
  VisionRunner runner(GetParam(), ElementType::kBF16, 2);
  for (const VisionCase& golden : testing::ReadVisionGolden(DataFolder(GetParam())))
    EXPECT_LE(WorstRms(golden, runner.Run(golden, 512)), 0.15) << golden.images.size() << " images";
}

TEST_P(TowerGoldenTest, HasTheSameBitsHoweverAPromptIsCut) {
  VisionRunner runner(GetParam(), ElementType::kF32, 1), threads(GetParam(), ElementType::kF32, 3);
  for (const VisionCase& golden : testing::ReadVisionGolden(DataFolder(GetParam()))) {
    const LogitRows whole = runner.Run(golden, 512);
    EXPECT_EQ(testing::RowsUnlike(runner.Run(golden, 5), whole), 0u);
    EXPECT_EQ(testing::RowsUnlike(threads.Run(golden, 11), whole), 0u);
  }
}

TEST_P(TowerGoldenTest, AnImageChangesTheAnswer) {
  VisionRunner runner(GetParam(), ElementType::kF32, 1);
  VisionCase golden = testing::ReadVisionGolden(DataFolder(GetParam()))[1];
  const LogitRows with = runner.Run(golden, 512);
  auto other = std::make_shared<ProcessedImage>(*golden.images[0].image);
  std::ranges::fill(other->values, 0.25F);
  golden.images[0].image = other;
  const LogitRows without = runner.Run(golden, 512);
  EXPECT_GT(std::abs(with.back()[5] - without.back()[5]), 1e-3);
}

TEST(TowerCheckTest, RefusesWhatIsNotItsImage) {
  VisionRunner runner("tiny-qwen3-vl", ElementType::kF32, 1);
  const ProcessedImage good =
      *testing::ReadVisionGolden(DataFolder("tiny-qwen3-vl"))[1].images[0].image;
  const auto check = [&](const ProcessedImage& image) {
    return ImageTower::Check(runner.tower().spec(), runner.tower().options(), image).has_value();
  };
  EXPECT_TRUE(check(good));
  ProcessedImage bad = good;
  bad.values.pop_back();
  EXPECT_FALSE(check(bad));
  bad = good;
  bad.grid = {1, 5, 12};
  EXPECT_FALSE(check(bad));
  bad = good;
  bad.num_embeddings -= 1;
  EXPECT_FALSE(check(bad));
  bad = good;
  bad.grid = {1, 40, 40};
  bad.values.resize(1600 * 96);
  bad.shape = {1600, 96};
  EXPECT_FALSE(check(bad));
}

// Returns the error for a tiny model's config.json with one of its fields changed.
std::string RefusalOf(const char* name, const char* field, const json::Value& value) {
  json::Value config = *json::Parse(*ReadFile(DataFolder(name) / "config.json"));
  const std::string path = field;
  const size_t dot = path.find('.');
  if (dot == std::string::npos) {
    config.Set(path, value);
  } else {
    json::Value part = *config.Find(path.substr(0, dot));
    part.Set(path.substr(dot + 1), value);
    config.Set(path.substr(0, dot), std::move(part));
  }
  const auto parsed = ParseModelShape(config);
  if (!parsed) return parsed.error().message;
  const auto spec = ReadTowerSpec(*parsed);
  return spec ? "" : spec.error().message;
}

TEST(TowerSpecTest, RefusesByNameWhatNoTowerHereComputes) {
  const auto expect = [](const std::string& message, const char* words) {
    EXPECT_NE(message.find(words), std::string::npos) << words << ": " << message;
  };
  const json::Value two = json::Value::Array{json::Value(-1), json::Value(-2)};
  expect(RefusalOf("tiny-llava-clip", "vision_feature_layer", two), "layers of 3, ascending");
  expect(RefusalOf("tiny-llava-clip", "vision_feature_layer", -9), "layers of 3, ascending");
  expect(RefusalOf("tiny-llava-clip", "vision_feature_select_strategy", "full"),
         "which has a class row");
  expect(RefusalOf("tiny-llava-siglip", "vision_feature_select_strategy", "default"),
         "which has no class row");
  expect(RefusalOf("tiny-llava-clip", "vision_config.model_type", "dinov2"),
         "supported are clip_vision_model, siglip_vision_model and pixtral");
  expect(RefusalOf("tiny-llava-clip", "text_config.model_type", "rwkv"),
         "text_config.model_type 'rwkv' is not supported by LlavaForConditionalGeneration; "
         "supported are llama, mistral");
  expect(RefusalOf("tiny-llava-next", "vision_config.model_type", "pixtral"), "class row");
  expect(RefusalOf("tiny-internvl", "vision_config.use_qk_norm", true), "use_qk_norm true");
  expect(RefusalOf("tiny-internvl", "downsample_ratio", 0.3), "downsample_ratio");
  expect(RefusalOf("tiny-aya-vision", "downsample_factor", 3), "a divisor of 4");
  expect(RefusalOf("tiny-aya-vision", "alignment_intermediate_size", 47), "an even number");
  expect(RefusalOf("tiny-aya-vision", "vision_feature_select_strategy", "default"),
         "only \"full\"");
  expect(RefusalOf("tiny-kimi-k25", "vision_config.mm_projector_type", "patchmergerv2"),
         "only \"patchmerger\"");
  expect(RefusalOf("tiny-kimi-k25", "vision_config.pos_emb_width", 6), "as many rows");
  expect(RefusalOf("tiny-idefics3", "scale_factor", 2), "a divisor of 9");
  expect(RefusalOf("tiny-lfm2-vl", "vision_config.num_patches", 26), "a square");
  expect(RefusalOf("tiny-qwen2-vl", "vision_config.hidden_size", 60), "the width of the text part");
  EXPECT_EQ(RefusalOf("tiny-llava-clip", "vision_feature_layer", -1), "");
}

// The published files use other field names than transformers.
TEST(TowerSpecTest, ReadsThePublishedNamesOfKimi) {
  json::Value config = *json::Parse(*ReadFile(DataFolder("tiny-kimi-k25") / "config.json"));
  const auto spec_of = [](const json::Value& one) {
    return **ReadTowerSpec(ParseModelShape(one).value());
  };
  const TowerSpec expected = spec_of(config);
  json::Value vision{json::Value::Object{}};
  for (const auto& [from, to] : {std::pair{"hidden_size", "vt_hidden_size"},
                                 {"intermediate_size", "vt_intermediate_size"},
                                 {"num_hidden_layers", "vt_num_hidden_layers"},
                                 {"num_attention_heads", "vt_num_attention_heads"},
                                 {"pos_emb_height", "init_pos_emb_height"},
                                 {"pos_emb_width", "init_pos_emb_width"},
                                 {"merge_kernel_size", "merge_kernel_size"},
                                 {"patch_size", "patch_size"}})
    vision.Set(to, *config.Find("vision_config")->Find(from));
  config.Set("vision_config", std::move(vision));
  const TowerSpec spec = spec_of(config);
  EXPECT_EQ(spec.position_shape, expected.position_shape);
  EXPECT_EQ(spec.rope_frequencies, expected.rope_frequencies);
  EXPECT_EQ(std::tuple(spec.hidden, spec.intermediate, spec.num_layers, spec.heads, spec.patch),
            std::tuple(expected.hidden, expected.intermediate, expected.num_layers, expected.heads,
                       expected.patch));
}

TEST(TowerCheckTest, RefusesACanvasThatIsNotThere) {
  VisionRunner runner("tiny-llava-next", ElementType::kF32, 1);
  const ProcessedImage good =
      *testing::ReadVisionGolden(DataFolder("tiny-llava-next"))[1].images[0].image;
  const auto check = [&](const ProcessedImage& image) {
    return ImageTower::Check(runner.tower().spec(), runner.tower().options(), image).has_value();
  };
  EXPECT_TRUE(check(good));
  for (const std::array<int, 4>& kept :
       {std::array<int, 4>{3, 0, 2, 8}, {1, 1, 2, 8}, {-1, 0, 2, 8}, {1, 0, 1, 8}, {0, 0, 0, 0}}) {
    ProcessedImage bad = good;
    bad.kept = kept;
    EXPECT_FALSE(check(bad));
  }
  ProcessedImage bad = good;
  bad.tiles = {2, 2};
  EXPECT_FALSE(check(bad));
}

TEST(RopePositionsTest, TextGoesOnBehindTheLargestPosition) {
  ProcessedImage image;
  image.grid = {1, 4, 8};
  image.is_embedding = {0, 1, 1, 1, 1, 1, 1, 1, 1, 0};
  image.tokens.assign(10, 7);
  const std::vector<PlacedImage> placed = {{2, &image}};
  const RopePositions positions(14, placed, 2);
  const std::vector<std::vector<int32_t>> expected = {
      {0, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 7, 8, 9, 10},
      {0, 1, 2, 3, 3, 3, 3, 4, 4, 4, 4, 7, 8, 9, 10},
      {0, 1, 2, 3, 4, 5, 6, 3, 4, 5, 6, 7, 8, 9, 10}};
  for (int axis = 0; axis < 3; ++axis) {
    for (int64_t i = 0; i < 15; ++i)
      EXPECT_EQ(positions.At(axis, i), expected[static_cast<size_t>(axis)][static_cast<size_t>(i)]);
  }
  EXPECT_FALSE(positions.is_plain());
  EXPECT_TRUE(RopePositions().is_plain());
}

}  // namespace
}  // namespace sluice
