// Tests prompts with images on the emulated device. Logits are close to those of transformers and
// have the same bits however a prompt is divided. Towers on the device give rows close to the
// CPU's.
#include <cmath>
#include <map>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/tower/vision_runner_testing.h"

namespace sluice {
namespace {

using testing::DataFolder;
using testing::LogitRows;
using testing::VisionCase;
using testing::VisionRunner;

// The bound is the same as in TowerGoldenTest.StaysNearInBf16. Results have the same bits however a
// prompt is divided.
void ExpectNearTransformers(VisionRunner& runner, const char* checkpoint) {
  for (const VisionCase& golden : testing::ReadVisionGolden(DataFolder(checkpoint))) {
    const LogitRows whole = runner.Run(golden, 512);
    const double rms = WorstRms(golden, whole);
    ::testing::Test::RecordProperty(fmt::format("rms_{}", golden.images.size()),
                                    fmt::format("{:.2g}", rms));
    EXPECT_LE(rms, 0.15) << golden.images.size() << " images";
    EXPECT_EQ(testing::RowsUnlike(runner.Run(golden, 7), whole), 0u);
  }
}

class DeviceVisionTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Checkpoints, DeviceVisionTest,
                         ::testing::ValuesIn(testing::kVisionCheckpoints), testing::TestName);

TEST_P(DeviceVisionTest, HeavyStaysNearTransformers) {
  if (GetParam() == std::string("tiny-aya-vision"))
    GTEST_SKIP() << "Cohere's layer norms are refused: no kernel of devices computes them";
  VisionRunner runner(GetParam(), ElementType::kBF16, 2, VisionRunner::Place::kDevice);
  if (!HasFatalFailure()) ExpectNearTransformers(runner, GetParam());
}

class AllOnDeviceTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Checkpoints, AllOnDeviceTest,
                         ::testing::ValuesIn(testing::kWideVisionCheckpoints), testing::TestName);

TEST_P(AllOnDeviceTest, HeavyStaysNearTransformers) {
  VisionRunner runner(GetParam(), ElementType::kBF16, 2, VisionRunner::Place::kAllOnDevice);
  if (!HasFatalFailure()) ExpectNearTransformers(runner, GetParam());
}

// The tower of a tiny checkpoint with random weights and heads of 16 elements, the smallest heads
// that devices support. TowerGoldenTest compares the same tower on the CPU with transformers.
class DeviceTowerTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    json::Value config = *json::Parse(*ReadFile(DataFolder(GetParam()) / "config.json"));
    json::Value vision = *config.Find("vision_config");
    for (const char* field : {"hidden_size", "embed_dim", "head_dim"}) {
      const json::Value* size = vision.Find(field);
      // Qwen2-VL: the row width of the text model.
      const bool is_text =
          vision.Find("embed_dim") != nullptr && field == std::string("hidden_size");
      if (size != nullptr && size->is_number() && !is_text)
        vision.Set(field, 2 * size->as_integer());
    }
    for (const char* field : {"projector_input_dim", "projector_output_dim", "vision_output_dim"}) {
      if (vision.Find(field) != nullptr) vision.Set(field, 24);
    }
    config.Set("vision_config", std::move(vision));
    auto parsed = ParseModelShape(config);
    ASSERT_TRUE(parsed) << parsed.error().message;
    config_ = *std::move(parsed);
    const auto spec = ReadTowerSpec(config_);
    ASSERT_TRUE(spec && spec->has_value()) << (spec ? "no tower" : spec.error().message);
    spec_ = **spec;
  }

  // Allocates the device's memory and loads the tower.
  void LoadOnDevice() {
    const auto memory = PlanTowerOnDevice(spec_, *config_.scheme, kOptions, 2, device_.info());
    ASSERT_TRUE(memory) << memory.error().message;
    const int64_t image_bytes = DevicePool::Padded(kPlaces * spec_.row_width() * 4);
    auto pool = DevicePool::Allocate(
        device_, image_bytes + memory->device.weight_bytes + memory->device.workspace_bytes,
        "a tower");
    ASSERT_TRUE(pool) << pool.error().message;
    device_pool_ = std::make_unique<DevicePool>(*std::move(pool));
    auto stream = device_.CreateStream();
    ASSERT_TRUE(stream);
    stream_ = *std::move(stream);
    const auto rows = device_pool_->Take(image_bytes, "rows of images");
    ASSERT_TRUE(rows);
    images_ = {.rows = static_cast<float*>(*rows), .stream = stream_.get()};
    auto tower = ImageTower::LoadOnDevice(device_, *device_pool_, images_, threads_, {}, spec_,
                                          *config_.scheme, kOptions);
    ASSERT_TRUE(tower) << tower.error().message;
    EXPECT_EQ(device_pool_->used_bytes(), device_pool_->size_bytes());
    tower_ = *std::move(tower);
    tower_->PrepareThread(threads_);
  }

  std::vector<float> EncodeOnDevice(const ProcessedImage& image, int32_t first) {
    std::vector<int32_t> places;
    for (int32_t i = 0; i < image.num_embeddings; ++i) places.push_back(first - i);
    tower_->EncodeTo(threads_, image, places);
    const int64_t width = spec_.row_width();
    std::vector<float> rows(static_cast<size_t>(image.num_embeddings * width));
    for (size_t i = 0; i < places.size(); ++i) {
      stream_->CopyToHost(rows.data() + static_cast<int64_t>(i) * width,
                          images_.rows + places[i] * width, width * 4);
    }
    EXPECT_TRUE(stream_->Synchronize());
    return rows;
  }

  static constexpr int64_t kPlaces = 300;
  static constexpr TowerOptions kOptions = {.compute_type = ElementType::kBF16,
                                            .most_patches = 256,
                                            .load_format = ModelOptions::LoadFormat::kDummy};
  ThreadPool threads_{2};
  ModelConfig config_;
  TowerSpec spec_;
  EmulatedDevice device_{EmulatedDeviceOptions{.keeps_arrays_apart = true}};
  std::unique_ptr<DevicePool> device_pool_;
  std::unique_ptr<DeviceStream> stream_;
  DeviceImages images_;
  std::unique_ptr<ImageTower> tower_;
};
INSTANTIATE_TEST_SUITE_P(Checkpoints, DeviceTowerTest,
                         ::testing::ValuesIn(testing::kVisionCheckpoints), testing::TestName);

TEST_P(DeviceTowerTest, HeavyRowsAreNearThoseOfTheCpu) {
  const std::map<std::string, std::string> missing = {{"tiny-gemma4-e-vision", "clamped"},
                                                      {"tiny-granite-vision", "several layers"}};
  if (const auto found = missing.find(GetParam()); found != missing.end()) {
    const auto refused = PlanTowerOnDevice(spec_, *config_.scheme, kOptions, 2, device_.info());
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find(found->second), std::string::npos)
        << refused.error().message;
    return;
  }
  LoadOnDevice();
  if (HasFatalFailure()) return;
  auto on_cpu = ImageTower::Load(threads_, {}, spec_, *config_.scheme, kOptions);
  ASSERT_TRUE(on_cpu) << on_cpu.error().message;
  (*on_cpu)->PrepareThread(threads_);
  for (const VisionCase& golden : testing::ReadVisionGolden(DataFolder(GetParam()))) {
    for (const auto& placed : golden.images) {
      const ProcessedImage& image = *placed.image;
      const std::vector<float> rows = EncodeOnDevice(image, 299);
      std::vector<float> expected(rows.size());
      std::vector<float*> targets;
      for (int64_t i = 0; i < image.num_embeddings; ++i)
        targets.push_back(expected.data() + i * spec_.row_width());
      (*on_cpu)->Encode(threads_, image, targets);
      double errors = 0, squares = 0;
      for (size_t i = 0; i < rows.size(); ++i) {
        errors += (rows[i] - expected[i]) * (rows[i] - expected[i]);
        squares += expected[i] * expected[i];
      }
      EXPECT_GT(squares, 0);
      EXPECT_LT(std::sqrt(errors / squares), 0.02);
      EXPECT_EQ(EncodeOnDevice(image, 200), rows) << "in other places";
    }
  }
}

}  // namespace
}  // namespace sluice
