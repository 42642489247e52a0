// For tests: runs prompts with images on a tower and a decoder.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "device/device_pool.h"
#include "device/emulated_device.h"
#include "models/device/device_model.h"
#include "models/golden_testing.h"
#include "models/kv_layout.h"
#include "models/tower/image_tower.h"
#include "models/tower/rope_positions.h"
#include "models/tower/vision_testing.h"

namespace sluice::testing {

// A model, its tower, and the cache for a prompt with images. On the emulated device, the decoder
// has exactly as much memory as planned.
class VisionRunner {
 public:
  // kDevice: the tower is on the CPU. kAllOnDevice: the tower is also on the device.
  enum class Place : uint8_t { kCpu, kDevice, kAllOnDevice };

  VisionRunner(const char* name, ElementType type, int num_threads, Place place = Place::kCpu)
      : options_(SmallOptions(type, type)), pool_(num_threads) {
    options_.image_rows = kPlaces;
    options_.max_slices = 1;
    const std::filesystem::path folder = DataFolder(name);
    auto config = LoadModelConfig(folder);
    EXPECT_TRUE(config) << (config ? "" : config.error().message);
    config_ = *std::move(config);
    auto spec = ReadTowerSpec(config_);
    EXPECT_TRUE(spec && spec->has_value()) << (spec ? "no tower" : spec.error().message);
    if (place == Place::kCpu)
      LoadOnCpu(folder);
    else
      LoadOnDevice(folder, **spec, place == Place::kAllOnDevice);
    if (::testing::Test::HasFatalFailure()) return;
    LoadTower(folder, **spec, place == Place::kAllOnDevice);
    if (::testing::Test::HasFatalFailure()) return;
    tower_->PrepareThread(pool_);
    for (int32_t i = 0; i < kBlocks; ++i) table_.push_back(kBlocks - 1 - i);
  }

  ImageTower& tower() { return *tower_; }
  ThreadPool& pool() { return pool_; }

  std::vector<float> Encode(const ProcessedImage& image) {
    const Status status = ImageTower::Check(tower_->spec(), tower_->options(), image);
    EXPECT_TRUE(status) << (status ? "" : status.error().message);
    const auto width = static_cast<size_t>(tower_->spec().row_width());
    std::vector<float> rows(static_cast<size_t>(image.num_embeddings) * width, NAN);
    std::vector<float*> targets;
    for (int i = 0; i < image.num_embeddings; ++i)
      targets.push_back(rows.data() + static_cast<size_t>(i) * width);
    tower_->Encode(pool_, image, targets);
    return rows;
  }

  // Returns the logits of all tokens, computed in chunks of at most `chunk`. If tokens of an image
  // attend to each other, chunks do not end inside it.
  LogitRows Run(const VisionCase& golden, size_t chunk) {
    std::vector<std::vector<float>> rows;
    std::vector<PlacedImage> placed;
    spans_.clear();
    int32_t next = kPlaces;
    for (const auto& image : golden.images) {
      if (tower_->is_on_device()) {
        std::vector<int32_t> places;
        for (int i = 0; i < image.image->num_embeddings; ++i) places.push_back(--next);
        tower_->EncodeTo(pool_, *image.image, places);
        rows.emplace_back();
      } else {
        rows.push_back(Encode(*image.image));
      }
      placed.push_back({image.position, image.image.get()});
      const auto& marks = image.image->is_embedding;
      const auto first = std::ranges::find(marks, 1) - marks.begin();
      spans_.push_back(
          {static_cast<int32_t>(image.position + first),
           static_cast<int32_t>(image.position + first + image.image->num_embeddings)});
    }
    if (!tower_->spec().sees_both_ways) spans_.clear();
    const RopePositions positions(std::ssize(golden.prompt), placed, tower_->spec().merge);
    LogitRows all;
    for (size_t begin = 0; begin < golden.prompt.size();) {
      size_t end = std::min(begin + chunk, golden.prompt.size());
      for (const kernels::SeenSpan& span : spans_) {
        if (end > static_cast<size_t>(span.begin) && end < static_cast<size_t>(span.end))
          end = static_cast<size_t>(span.end);
      }
      RunChunk(golden, rows, positions, begin, end, all);
      begin = end;
    }
    return all;
  }

 private:
  static constexpr int32_t kBlocks = 32;
  static constexpr int32_t kPlaces = 256;

  void LoadTower(const std::filesystem::path& folder, const TowerSpec& spec, bool on_device) {
    const TowerOptions options = TowerOf(options_.compute_type);
    if (!on_device) {
      auto loaded = ImageTower::Load(pool_, folder, spec, *config_.scheme, options);
      ASSERT_TRUE(loaded) << loaded.error().message;
      tower_ = *std::move(loaded);
      return;
    }
    auto loaded = ImageTower::LoadOnDevice(*device_, *device_pool_, model_->device_images(), pool_,
                                           folder, spec, *config_.scheme, options);
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(device_pool_->used_bytes(), device_pool_->size_bytes());
    tower_ = *std::move(loaded);
  }

  void LoadOnCpu(const std::filesystem::path& folder) {
    auto model = LoadModel(pool_, folder, config_, options_);
    EXPECT_TRUE(model) << (model ? "" : model.error().message);
    model_ = *std::move(model);
    auto cache = KvCache::Allocate(KvLayoutOf(config_.spec, options_),
                                   KvGroups::Uniform(config_.spec), kBlocks);
    EXPECT_TRUE(cache);
    EXPECT_TRUE(cache->AllocateStates(StateLayout::For(config_.spec), options_.state_slots));
    cache_ = std::make_unique<KvCache>(*std::move(cache));
  }

  static TowerOptions TowerOf(ElementType type) {
    return {.compute_type = type, .most_patches = 256};
  }

  void LoadOnDevice(const std::filesystem::path& folder, const TowerSpec& spec, bool with_tower) {
    device_ = std::make_unique<EmulatedDevice>(EmulatedDeviceOptions{.keeps_arrays_apart = true});
    const auto memory = PlanDeviceModel(config_, options_, device_->info());
    ASSERT_TRUE(memory) << memory.error().message;
    const int64_t model_bytes = memory->weight_bytes + memory->workspace_bytes;
    const int64_t kv_bytes = DevicePool::Padded(memory->kv_bytes_per_block * kBlocks);
    const int64_t state_bytes =
        DevicePool::Padded(memory->state_bytes_per_slot * options_.state_slots);
    int64_t tower_bytes = 0;
    if (with_tower) {
      const auto tower = PlanTowerOnDevice(spec, *config_.scheme, TowerOf(ElementType::kBF16),
                                           pool_.num_threads(), device_->info());
      ASSERT_TRUE(tower) << tower.error().message;
      tower_bytes = tower->device.weight_bytes + tower->device.workspace_bytes;
    }
    auto pool = DevicePool::Allocate(*device_, model_bytes + kv_bytes + state_bytes + tower_bytes,
                                     "a model");
    ASSERT_TRUE(pool) << pool.error().message;
    device_pool_ = std::make_unique<DevicePool>(*std::move(pool));
    auto model = LoadDeviceModel(*device_, *device_pool_, pool_, folder, config_, options_);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(device_pool_->used_bytes(), model_bytes);
    model_ = *std::move(model);
    const auto kv = device_pool_->Take(kv_bytes, "the KV cache");
    const auto states = device_pool_->Take(state_bytes, "the states of sequences");
    ASSERT_TRUE(kv && states);
    cache_ = std::make_unique<KvCache>(KvCache::Wrap(
        KvLayoutOf(config_.spec, options_), KvGroups::Uniform(config_.spec), kBlocks, *kv));
    cache_->WrapStates(StateLayout::For(config_.spec), options_.state_slots, *states);
  }

  void RunChunk(const VisionCase& golden, const std::vector<std::vector<float>>& rows,
                const RopePositions& positions, size_t begin, size_t end, LogitRows& all) {
    std::vector<int32_t> tokens(golden.prompt.begin() + static_cast<ptrdiff_t>(begin),
                                golden.prompt.begin() + static_cast<ptrdiff_t>(end));
    const auto count = static_cast<int32_t>(end - begin);
    std::vector<int32_t> places, wanted, axes;
    for (int32_t i = 0; i < count; ++i) {
      places.push_back(static_cast<int32_t>(begin) + i);
      wanted.push_back(i);
    }
    for (int axis = 0; axis < RopePositions::kAxes; ++axis) {
      for (const int32_t place : places) axes.push_back(positions.At(axis, place));
    }
    std::vector<ImageRow> images;
    std::vector<StoredImageRow> stored;
    const auto width = static_cast<size_t>(tower_->spec().row_width());
    for (size_t i = 0, place = 0; i < golden.images.size(); ++i) {
      size_t row = 0;
      for (size_t k = 0; k < golden.images[i].image->is_embedding.size(); ++k) {
        if (golden.images[i].image->is_embedding[k] == 0) continue;
        const size_t at = static_cast<size_t>(golden.images[i].position) + k;
        const auto mine = static_cast<int32_t>(kPlaces - 1 - place++);
        if (begin == 0 && !tower_->is_on_device())
          stored.push_back({mine, rows[i].data() + row * width});
        if (at >= begin && at < end) {
          const auto local = static_cast<int32_t>(at - begin);
          images.push_back({local, rows[i].data() + row * width, mine});
          if (config_.spec.image_token >= 0)
            tokens[static_cast<size_t>(local)] = config_.spec.image_token;
        }
        ++row;
      }
    }
    const std::vector<kernels::AttentionSlice> slices = {
        {.first_row = 0,
         .num_tokens = count,
         .context = static_cast<int32_t>(begin),
         .block_table = table_.data(),
         .spans = spans_.data(),
         .num_spans = static_cast<int32_t>(spans_.size())}};
    StepInput input{tokens, places, slices, wanted};
    input.image_rows = images;
    input.stored_image_rows = stored;
    if (!config_.spec.rope_axes.empty() && !positions.is_plain()) input.rope_positions = axes;
    const std::vector<StateSlot> states = {{.slot = 3, .is_new = begin == 0}};
    if (config_.spec.KeepsStates()) input.states = states;
    const auto vocabulary = static_cast<size_t>(config_.vocab_size);
    std::vector<float> logits(tokens.size() * vocabulary);
    model_->Forward(pool_, input, *cache_, logits.data());
    for (size_t i = 0; i < tokens.size(); ++i) {
      all.emplace_back(logits.begin() + static_cast<ptrdiff_t>(i * vocabulary),
                       logits.begin() + static_cast<ptrdiff_t>((i + 1) * vocabulary));
    }
  }

  ModelOptions options_;
  ThreadPool pool_;
  ModelConfig config_;
  std::unique_ptr<EmulatedDevice> device_;
  std::unique_ptr<DevicePool> device_pool_;
  std::unique_ptr<ImageTower> tower_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> cache_;
  std::vector<int32_t> table_;
  std::vector<kernels::SeenSpan> spans_;
};

}  // namespace sluice::testing
