// An image tower: from processed images to the rows that stand for them in a decoder, on the CPU
// wherever the decoder is computed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/thread_pool.h"
#include "models/cpu/executor.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "models/tower/tower_spec.h"
#include "models/tower/tower_step.h"
#include "models/tower/tower_weights.h"
#include "vision/processed_image.h"

namespace sluice {

// Patches that a tower computes together: those of an image, or of one tile or crop of it.
inline constexpr int64_t kMostTowerPatches = 16384;

struct TowerOptions {
  ElementType compute_type = ElementType::kBF16;
  int64_t most_patches = kMostTowerPatches;
  ModelOptions::LoadFormat load_format = ModelOptions::LoadFormat::kAuto;
  uint64_t dummy_seed = 0;
  bool allow_nonfinite = false;
};

// What a tower takes.
struct TowerMemory {
  int64_t weight_bytes = 0;
  int64_t workspace_bytes = 0;  // of each engine
};

// Patches that are computed together at most: of towers whose images have one size, as many as
// those have.
int64_t MostPatches(const TowerSpec& spec, const TowerOptions& options);
// Rows that an image may have: of one whose patches are computed together, MostPatches over those
// that are merged; of one that is in tiles or crops, that of the most that processors make.
int64_t MostImageRows(const TowerSpec& spec, const TowerOptions& options);

// From config.json alone.
TowerMemory PlanTower(const TowerSpec& spec, const QuantizationScheme& scheme,
                      const TowerOptions& options, int num_threads);

// Thread safety: Check is const; Encode by one thread at a time. Ownership: owns its workspace, and
// the weights together with the towers that share them.
class ImageTower {
 public:
  // The tower of the checkpoint in `folder`. kNotFound where the files hold none.
  static Result<std::unique_ptr<ImageTower>> Load(ThreadPool& pool,
                                                  const std::filesystem::path& folder,
                                                  const TowerSpec& spec,
                                                  const QuantizationScheme& scheme,
                                                  const TowerOptions& options);
  // One with the same weights and a workspace of its own.
  Result<std::unique_ptr<ImageTower>> Share(const ThreadPool& pool) const;

  const TowerSpec& spec() const { return spec_; }
  const TowerOptions& options() const { return options_; }

  // To be called on the thread that will call Encode, before its first call.
  void PrepareThread(const ThreadPool& pool) const;

  // kInvalidArgument for an image that is not what this tower's processor makes, or too large.
  static Status Check(const TowerSpec& spec, const TowerOptions& options,
                      const ProcessedImage& image);

  // Writes the rows of an image, each [TowerSpec::row_width()] F32, in the order of its marked
  // tokens. They depend on the image alone. REQUIRES: Check passed; rows.size() ==
  // image.num_embeddings.
  void Encode(ThreadPool& pool, const ProcessedImage& image, std::span<float* const> rows);

 private:
  ImageTower(TowerSpec spec, const TowerOptions& options,
             std::shared_ptr<const TowerWeights> weights, CpuExecutor executor, KvCache cache);
  static Result<std::unique_ptr<ImageTower>> Make(const TowerSpec& spec,
                                                  const TowerOptions& options,
                                                  std::shared_ptr<const TowerWeights> weights,
                                                  int num_threads);

  // One image, tile or crop of `height` x `width` patches.
  void Lay(int64_t height, int64_t width);
  void LayPositions(int64_t height, int64_t width);
  void LayWindows();
  // Where the rows of a unit go: step_.targets. `merged`: rows of a unit.
  void LayTargets(const ProcessedImage& image, int64_t unit, int64_t merged,
                  std::span<float* const> rows);
  void Run(ThreadPool& pool);

  TowerSpec spec_;
  TowerOptions options_;
  std::shared_ptr<const TowerWeights> weights_;
  CpuExecutor executor_;
  KvCache cache_;
  // Memory of the current step; allocated once.
  TowerStep step_;
  std::vector<int32_t> order_;           // [merged rows]: the raster place of each
  std::vector<int32_t> rope_positions_;  // [2, rows]
  std::vector<int32_t> positions_;       // [rows]
  std::vector<int32_t> window_rows_;     // of each window
  std::vector<int32_t> tables_;          // of blocks: of the whole image, then of the windows
  std::vector<kernels::AttentionSlice> slices_;
};

}  // namespace sluice
