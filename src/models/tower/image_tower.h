// An image tower: computes the rows that represent processed images in a decoder. It runs on the
// CPU. If the decoder is on a single device, the tower's layers may run on that device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/thread_pool.h"
#include "models/cpu/executor.h"
#include "models/device/device_tower.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "models/tower/tower_spec.h"
#include "models/tower/tower_step.h"
#include "models/tower/tower_weights.h"
#include "vision/processed_image.h"

namespace sluice {

// Maximum number of patches that a tower computes together: those of an image, tile or crop.
inline constexpr int64_t kMostTowerPatches = 16384;

struct TowerOptions {
  ElementType compute_type = ElementType::kBF16;
  int64_t most_patches = kMostTowerPatches;
  ModelOptions::LoadFormat load_format = ModelOptions::LoadFormat::kAuto;
  uint64_t dummy_seed = 0;
  bool allow_nonfinite = false;
};

// Memory that a tower needs.
struct TowerMemory {
  int64_t weight_bytes = 0;
  int64_t workspace_bytes = 0;    // workspace bytes per engine
  DeviceTowerMemory device = {};  // only if the layers are computed on a device
};

// Maximum number of patches that are computed together. If all images of the tower have the same
// size, this size is the maximum.
int64_t MostPatches(const TowerSpec& spec, const TowerOptions& options);
// Maximum number of rows of an image: MostPatches divided by the patches of a merged row; for
// images in tiles or crops, times the maximum number of tiles or crops that processors create.
int64_t MostImageRows(const TowerSpec& spec, const TowerOptions& options);

// Computes sizes only from config.json.
TowerMemory PlanTower(const TowerSpec& spec, const QuantizationScheme& scheme,
                      const TowerOptions& options, int num_threads);
// Like PlanTower, with the layers on a device. kUnsupported names the operation that no kernel
// computes.
Result<TowerMemory> PlanTowerOnDevice(const TowerSpec& spec, const QuantizationScheme& scheme,
                                      const TowerOptions& options, int num_threads,
                                      const DeviceInfo& device);

// Thread safety: Check is const; Encode by one thread at a time. Ownership: owns its workspace, and
// the weights together with the towers that share them.
class ImageTower {
 public:
  // Loads the tower of the checkpoint in `folder`. kNotFound if the files contain none.
  static Result<std::unique_ptr<ImageTower>> Load(ThreadPool& pool,
                                                  const std::filesystem::path& folder,
                                                  const TowerSpec& spec,
                                                  const QuantizationScheme& scheme,
                                                  const TowerOptions& options);
  // Like Load, with the layers on a device, in the memory that PlanTowerOnDevice counts. `images`:
  // the decoder's image rows, which EncodeTo writes.
  static Result<std::unique_ptr<ImageTower>> LoadOnDevice(
      Device& device, DevicePool& device_pool, const DeviceImages& images, ThreadPool& pool,
      const std::filesystem::path& folder, const TowerSpec& spec, const QuantizationScheme& scheme,
      const TowerOptions& options);
  // Returns a tower with the same weights and its own workspace.
  Result<std::unique_ptr<ImageTower>> Share(const ThreadPool& pool) const;

  const TowerSpec& spec() const { return spec_; }
  const TowerOptions& options() const { return options_; }

  // Call before the first Encode, on the thread that will call Encode.
  void PrepareThread(const ThreadPool& pool) const;

  // Returns kInvalidArgument if the image is too large, or was not made by this tower's processor.
  static Status Check(const TowerSpec& spec, const TowerOptions& options,
                      const ProcessedImage& image);

  // Writes the rows of an image, each [TowerSpec::row_width()] F32, in the order of its marked
  // tokens. They depend only on the image. REQUIRES: Check passed; rows.size() ==
  // image.num_embeddings.
  void Encode(ThreadPool& pool, const ProcessedImage& image, std::span<float* const> rows);

  // Like Encode, on a device: writes to the decoder's buffer for image rows. REQUIRES:
  // is_on_device().
  void EncodeTo(ThreadPool& pool, const ProcessedImage& image, std::span<const int32_t> places);
  bool is_on_device() const { return body_ != nullptr; }

 private:
  ImageTower(TowerSpec spec, const TowerOptions& options,
             std::shared_ptr<const TowerWeights> weights, CpuExecutor executor,
             std::unique_ptr<KvCache> cache);
  static Result<std::shared_ptr<TowerWeights>> LoadWeights(
      ThreadPool& pool, const Checkpoint* checkpoint, const TowerSpec& spec,
      const QuantizationScheme& scheme, const TowerOptions& options, bool is_front);
  static Result<std::unique_ptr<ImageTower>> Make(const TowerSpec& spec,
                                                  const TowerOptions& options,
                                                  std::shared_ptr<const TowerWeights> weights,
                                                  int num_threads);

  // Arranges the patches of an image, tile or crop of `height` x `width` patches.
  void Lay(int64_t height, int64_t width);
  void LayPositions(int64_t height, int64_t width);
  void LayWindows();
  // Sets targets_: for each row of a unit, its row in the image. `merged`: number of rows of a
  // unit.
  void LayTargets(const ProcessedImage& image, int64_t unit, int64_t merged);
  // Arranges each unit and calls run() for it. Calls end(row) for each newline row.
  template <typename RunUnit, typename EndRow>
  void VisitUnits(const ProcessedImage& image, const RunUnit& run, const EndRow& end);
  StepInput Input() const;
  void Run(ThreadPool& pool);

  TowerSpec spec_;
  TowerOptions options_;
  std::shared_ptr<const TowerWeights> weights_;
  CpuExecutor executor_;
  std::unique_ptr<KvCache> cache_;     // null if the layers are computed on a device
  std::unique_ptr<DeviceTower> body_;  // null: the CPU computes the layers
  DeviceImages images_;                // the decoder's image rows, if there is a body
  // Memory of the current step; allocated once.
  TowerStep step_;
  std::vector<int32_t> order_;           // [merged rows]: index of each row in raster order
  std::vector<int32_t> targets_;         // [merged rows]: row of the image; -1: dropped
  std::vector<int32_t> rope_positions_;  // [2, rows]
  std::vector<int32_t> positions_;       // [rows]
  std::vector<int32_t> window_rows_;     // number of rows of each window
  std::vector<int32_t> tables_;          // block tables: of the whole image, then of the windows
  std::vector<kernels::AttentionSlice> slices_;
};

}  // namespace sluice
