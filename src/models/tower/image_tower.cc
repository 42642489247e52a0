#include "models/tower/image_tower.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/linear.h"
#include "models/kv_layout.h"
#include "models/program/buffers.h"
#include "models/program/build_tower.h"
#include "models/weight_loader.h"

namespace sluice {
namespace {

constexpr int kTowerBlock = 16;  // tokens per block of the tower's cache

int64_t StepRows(const TowerSpec& spec, const TowerOptions& options) {
  return MostPatches(spec, options) + (spec.has_class ? 1 : 0);
}

// Returns the maximum number of windows of an image: whole windows, and partial windows at two
// borders.
int64_t MostWindows(const TowerSpec& spec, const TowerOptions& options) {
  if (spec.window == 0) return 1;
  const int64_t patches = MostPatches(spec, options), across = spec.window / spec.merge;
  const int64_t cells = patches / spec.group();
  return cells / (across * across) + 2 * (cells / across + 1) + 2;
}

// Returns the number of cache blocks. Each window starts a new block.
int64_t TowerBlocks(const TowerSpec& spec, const TowerOptions& options) {
  const int64_t whole = (StepRows(spec, options) + kTowerBlock - 1) / kTowerBlock;
  return spec.window == 0 ? whole : whole + MostWindows(spec, options);
}

ModelOptions StepOptions(const TowerSpec& spec, const TowerOptions& options) {
  ModelOptions step;
  step.compute_type = options.compute_type;
  step.kv_type = options.compute_type;
  step.block_size = kTowerBlock;
  step.max_rows = StepRows(spec, options);
  step.max_slices = MostWindows(spec, options);
  step.max_context = step.max_rows;
  step.max_logit_rows = MostPatches(spec, options) / spec.group();
  return step;
}

TowerSizes SizesOf(const TowerSpec& spec, const TowerOptions& options) {
  TowerSizes sizes{.options = StepOptions(spec, options), .num_blocks = TowerBlocks(spec, options)};
  sizes.options.load_format = options.load_format;
  sizes.options.dummy_seed = options.dummy_seed;
  sizes.options.allow_nonfinite = options.allow_nonfinite;
  return sizes;
}

// The rows of a table with `side` rows that are summed for a position, and their weights.
struct Taps {
  std::vector<int32_t> rows = {};
  std::vector<float> weights = {};

  void Add(int64_t row, int64_t side, float weight) {
    rows.push_back(static_cast<int32_t>(std::clamp<int64_t>(row, 0, side - 1)));
    weights.push_back(weight);
  }
};

Taps LinearTaps(float place, int64_t side) {
  const float floor = std::floor(place);
  Taps taps;
  for (int tap = 0; tap < 2; ++tap) {
    taps.Add(static_cast<int64_t>(floor) + tap, side,
             std::max(0.0F, 1 - std::abs(place - floor - static_cast<float>(tap))));
  }
  return taps;
}

// Source: torch's grid_sample, for positions from -1 to 1.
Taps CubicTaps(float index, float size, int64_t side) {
  constexpr float kA = -0.75F;
  const float place = (((index + 0.5F) / size * 2 - 1 + 1) * static_cast<float>(side) - 1) / 2;
  const float floor = std::floor(place), t = place - floor;
  const auto near = [](float x) { return ((kA + 2) * x - (kA + 3)) * x * x + 1; };
  const auto far = [](float x) { return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA; };
  const auto first = static_cast<int64_t>(floor) - 1;
  Taps taps;
  taps.Add(first, side, far(t + 1));
  taps.Add(first + 1, side, near(t));
  taps.Add(first + 2, side, near(1 - t));
  taps.Add(first + 3, side, far(2 - t));
  return taps;
}

// Returns the same number of rows for every index. Source: transformers' Siglip2VisionEmbeddings.
Taps AntialiasedTaps(float index, float size, int64_t side) {
  const float scale = static_cast<float>(side) / size, support = std::max(scale, 1.0F);
  const float centre = (index + 0.5F) * scale - 0.5F;
  const int64_t count = std::min(side, 2 * static_cast<int64_t>(std::ceil(support)) + 1);
  const int64_t first =
      std::clamp<int64_t>(static_cast<int64_t>(std::floor(centre - support)), 0, side - count);
  Taps taps;
  float sum = 0;
  for (int64_t row = first; row < first + count; ++row) {
    const float weight = std::max(0.0F, 1 - std::abs(static_cast<float>(row) - centre) / support);
    taps.Add(row, side, weight);
    sum += weight;
  }
  for (float& weight : taps.weights) weight /= sum;
  return taps;
}

// Source: transformers' Idefics3VisionEmbeddings, which rounds boundaries from F64.
Taps BucketTaps(float index, float size, int64_t side) {
  const float place = std::min(index * (1.0F / size), static_cast<float>(1.0 - 1e-6));
  const double step = 1.0 / static_cast<double>(side);
  const auto boundaries = static_cast<int64_t>(std::ceil((1.0 - step) / step));
  int64_t row = 0;
  while (row < boundaries && static_cast<float>(step + static_cast<double>(row) * step) <= place)
    ++row;
  Taps taps;
  taps.Add(row, side, 1);
  return taps;
}

// Computed in F32, like the references.
Taps TapsOf(TowerSpec::Positions kind, int64_t index, int64_t size, int64_t side) {
  using Positions = TowerSpec::Positions;
  const auto i = static_cast<float>(index), n = static_cast<float>(size);
  switch (kind) {
    case Positions::kInterpolated:
      return LinearTaps(i * static_cast<float>(side - 1) / std::max(n - 1, 1.0F), side);
    case Positions::kInterpolatedCentres:
      return LinearTaps((i + 0.5F) * static_cast<float>(side) / n - 0.5F, side);
    case Positions::kBicubic: return CubicTaps(i, n, side);
    case Positions::kAntialiased: return AntialiasedTaps(i, n, side);
    default: return BucketTaps(i, n, side);
  }
}

// Returns the number of units (images, tiles or crops) that are computed in sequence.
int64_t NumUnits(const TowerSpec& spec, const ProcessedImage& image) {
  if (spec.input != TowerSpec::Input::kPixels || image.shape.size() < 4) return 1;
  return image.shape.front();
}

// Size in patches of an image, tile or crop: the tower's fixed size, or the image's own.
struct PatchGrid {
  int64_t height = 0, width = 0;
};
PatchGrid GridOf(const TowerSpec& spec, const ProcessedImage& image) {
  if (spec.side > 0 && image.grid[1] == 0 && image.grid[2] == 0) return {spec.side, spec.side};
  return {image.grid[1], image.grid[2]};
}

// Returns the number of values in a unit. An image in pixels may have some beyond its last whole
// patches.
int64_t UnitNumbers(const TowerSpec& spec, const ProcessedImage& image, const PatchGrid& grid) {
  const size_t axes = image.shape.size();
  if (spec.input != TowerSpec::Input::kPixels || axes < 3)
    return grid.height * grid.width * spec.patch_numbers();
  const int64_t height = image.shape[axes - 2], width = image.shape[axes - 1];
  const bool fits = height / spec.patch == grid.height && width / spec.patch == grid.width;
  return fits ? spec.channels * height * width : 0;
}

tl::unexpected<Error> WrongImage(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message), "images");
}

}  // namespace

int64_t MostPatches(const TowerSpec& spec, const TowerOptions& options) {
  if (spec.side > 0) return spec.side * spec.side;
  return std::max<int64_t>(1, options.most_patches / spec.group()) * spec.group() +
         spec.padding_patches;
}

int64_t MostImageRows(const TowerSpec& spec, const TowerOptions& options) {
  // Llama 4 has up to 16 tiles and the whole image, Gemma 3 the whole image and up to 4 crops.
  constexpr int64_t kMostUnits = 17;
  const int64_t rows = MostPatches(spec, options) / spec.group();
  // One more unit, for newline rows.
  if (!spec.newline_tensor.empty()) return rows * (kMostUnits + 1);
  return spec.side > 0 ? rows * kMostUnits : rows;
}

TowerMemory PlanTower(const TowerSpec& spec, const QuantizationScheme& scheme,
                      const TowerOptions& options, int num_threads) {
  TowerWeights unfilled;
  const ParameterList parameters = ListTowerParameters(spec, unfilled);
  const ModelOptions step = StepOptions(spec, options);
  const program::Program program = program::BuildTower(
      {.spec = spec, .options = step, .num_threads = num_threads, .weights = unfilled});
  TowerMemory memory;
  memory.weight_bytes = ParameterBytes(parameters, scheme, options.compute_type);
  memory.workspace_bytes =
      program::BufferPlan::For(program).total_bytes +
      kernels::LinearScratchBytes(num_threads, step.max_rows, program::WidestInput(program)) +
      TowerBlocks(spec, options) *
          KvCache::BytesPerBlock(KvLayoutOf(program.attentions.front(), step), 1);
  return memory;
}

Result<TowerMemory> PlanTowerOnDevice(const TowerSpec& spec, const QuantizationScheme& scheme,
                                      const TowerOptions& options, int num_threads,
                                      const DeviceInfo& device) {
  TowerMemory memory;
  ASSIGN_OR_RETURN(memory.device, DeviceTower::Plan(spec, scheme, SizesOf(spec, options), device));
  TowerWeights unfilled;
  const ParameterList front = TowerFrontParameters(ListTowerParameters(spec, unfilled), unfilled);
  const ModelOptions step = StepOptions(spec, options);
  const program::Program program = program::BuildTower({.spec = spec,
                                                        .options = step,
                                                        .num_threads = num_threads,
                                                        .weights = unfilled,
                                                        .part = program::TowerPart::kFront});
  memory.weight_bytes = ParameterBytes(front, scheme, options.compute_type);
  memory.workspace_bytes =
      program::BufferPlan::For(program).total_bytes +
      kernels::LinearScratchBytes(num_threads, step.max_rows, program::WidestInput(program)) +
      step.max_rows * spec.hidden * int64_t{sizeof(float)};
  return memory;
}

ImageTower::ImageTower(TowerSpec spec, const TowerOptions& options,
                       std::shared_ptr<const TowerWeights> weights, CpuExecutor executor,
                       std::unique_ptr<KvCache> cache)
    : spec_(std::move(spec)),
      options_(options),
      weights_(std::move(weights)),
      executor_(std::move(executor)),
      cache_(std::move(cache)) {
  const auto rows = static_cast<size_t>(StepRows(spec_, options_));
  for (std::vector<int32_t>* one :
       {&step_.patch_rows, &step_.patch_cols, &step_.sources, &positions_})
    one->reserve(rows);
  step_.targets.reserve(rows);
  order_.reserve(rows);
  targets_.reserve(rows);
  rope_positions_.reserve(2 * rows);
  const auto windows = static_cast<size_t>(MostWindows(spec_, options_));
  window_rows_.reserve(windows);
  slices_.reserve(std::max<size_t>(1, 2 * windows));
  tables_.resize(static_cast<size_t>(TowerBlocks(spec_, options_)));
  for (size_t i = 0; i < tables_.size(); ++i) tables_[i] = static_cast<int32_t>(i);
}

Result<std::unique_ptr<ImageTower>> ImageTower::Make(const TowerSpec& spec,
                                                     const TowerOptions& options,
                                                     std::shared_ptr<const TowerWeights> weights,
                                                     int num_threads) {
  const ModelOptions step = StepOptions(spec, options);
  program::Program program = program::BuildTower(
      {.spec = spec, .options = step, .num_threads = num_threads, .weights = *weights});
  ASSIGN_OR_RETURN(KvCache cache, KvCache::Allocate(KvLayoutOf(program.attentions.front(), step),
                                                    TowerGroups(spec), TowerBlocks(spec, options)));
  ASSIGN_OR_RETURN(CpuExecutor executor, CpuExecutor::Create(std::move(program), step, {}));
  return std::unique_ptr<ImageTower>(new ImageTower(spec, options, std::move(weights),
                                                    std::move(executor),
                                                    std::make_unique<KvCache>(std::move(cache))));
}

namespace {

// Opens the checkpoint, unless weights are random. kNotFound if it contains no tower.
Result<std::optional<Checkpoint>> OpenTower(const std::filesystem::path& folder,
                                            const TowerSpec& spec, const QuantizationScheme& scheme,
                                            const TowerOptions& options) {
  std::optional<Checkpoint> checkpoint;
  if (options.load_format == ModelOptions::LoadFormat::kDummy) return checkpoint;
  ASSIGN_OR_RETURN(checkpoint, Checkpoint::Open(folder));
  if (!HoldsTower(spec, *checkpoint)) {
    return Fail(
        ErrorCode::kNotFound,
        fmt::format("the checkpoint has no '{}': it is only the text part", spec.patch_module));
  }
  TowerWeights unfilled;
  RETURN_IF_ERROR(CheckListed(ListTowerParameters(spec, unfilled), *checkpoint, scheme));
  return checkpoint;
}

}  // namespace

Result<std::shared_ptr<TowerWeights>> ImageTower::LoadWeights(
    ThreadPool& pool, const Checkpoint* checkpoint, const TowerSpec& spec,
    const QuantizationScheme& scheme, const TowerOptions& options, bool is_front) {
  auto weights = std::make_shared<TowerWeights>();
  ParameterList parameters = ListTowerParameters(spec, *weights);
  if (is_front) parameters = TowerFrontParameters(std::move(parameters), *weights);
  if (checkpoint == nullptr) {
    RETURN_IF_ERROR(FillDummyParameters(pool, parameters, options.dummy_seed, scheme,
                                        options.compute_type, {}));
  } else {
    RETURN_IF_ERROR(LoadParameters(pool, parameters, *checkpoint, scheme, options.compute_type, {},
                                   options.allow_nonfinite));
  }
  return weights;
}

Result<std::unique_ptr<ImageTower>> ImageTower::Load(ThreadPool& pool,
                                                     const std::filesystem::path& folder,
                                                     const TowerSpec& spec,
                                                     const QuantizationScheme& scheme,
                                                     const TowerOptions& options) {
  ASSIGN_OR_RETURN(const std::optional<Checkpoint> checkpoint,
                   OpenTower(folder, spec, scheme, options));
  ASSIGN_OR_RETURN(auto weights, LoadWeights(pool, checkpoint ? &*checkpoint : nullptr, spec,
                                             scheme, options, /*is_front=*/false));
  return Make(spec, options, std::move(weights), pool.num_threads());
}

Result<std::unique_ptr<ImageTower>> ImageTower::LoadOnDevice(
    Device& device, DevicePool& device_pool, const DeviceImages& images, ThreadPool& pool,
    const std::filesystem::path& folder, const TowerSpec& spec, const QuantizationScheme& scheme,
    const TowerOptions& options) {
  CHECK(images.rows != nullptr && images.stream != nullptr);
  ASSIGN_OR_RETURN(const std::optional<Checkpoint> checkpoint,
                   OpenTower(folder, spec, scheme, options));
  const Checkpoint* const files = checkpoint ? &*checkpoint : nullptr;
  ASSIGN_OR_RETURN(auto weights,
                   LoadWeights(pool, files, spec, scheme, options, /*is_front=*/true));
  const ModelOptions step = StepOptions(spec, options);
  program::Program program = program::BuildTower({.spec = spec,
                                                  .options = step,
                                                  .num_threads = pool.num_threads(),
                                                  .weights = *weights,
                                                  .part = program::TowerPart::kFront});
  ASSIGN_OR_RETURN(CpuExecutor executor, CpuExecutor::Create(std::move(program), step, {}));
  std::unique_ptr<ImageTower> tower(
      new ImageTower(spec, options, std::move(weights), std::move(executor), nullptr));
  ASSIGN_OR_RETURN(tower->body_, DeviceTower::Load(device, device_pool, *images.stream, pool, files,
                                                   spec, scheme, SizesOf(spec, options)));
  tower->images_ = images;
  return tower;
}

Result<std::unique_ptr<ImageTower>> ImageTower::Share(const ThreadPool& pool) const {
  CHECK(!is_on_device(), "engines do not share towers on devices");
  return Make(spec_, options_, weights_, pool.num_threads());
}

void ImageTower::PrepareThread(const ThreadPool& pool) const {
  kernels::ReserveLinearScratch(pool, StepRows(spec_, options_),
                                program::WidestInput(executor_.program()));
}

Status ImageTower::Check(const TowerSpec& spec, const TowerOptions& options,
                         const ProcessedImage& image) {
  const auto [height, width] = GridOf(spec, image);
  int64_t numbers = 1;
  for (const int64_t size : image.shape) numbers *= std::max<int64_t>(0, size);
  if (numbers != std::ssize(image.values) || image.grid[0] > 1 || height < 1 || width < 1)
    return WrongImage("an image whose shape differs from its grid");
  if (image.tokens.size() != image.is_embedding.size())
    return WrongImage("an image whose tokens are not marked");
  const int64_t units = NumUnits(spec, image);
  const int64_t patches = height * width;
  if (numbers != units * UnitNumbers(spec, image, {height, width})) {
    return WrongImage(
        fmt::format("an image of {} numbers, where {} x {} patches of {} are expected", numbers,
                    height, width, spec.patch_numbers()));
  }
  if (height % spec.merge != 0 || width % spec.merge != 0 ||
      (spec.side > 0 && (height != spec.side || width != spec.side))) {
    return WrongImage(fmt::format("an image of {} x {} patches, which the tower does not support",
                                  height, width));
  }
  if (patches > MostPatches(spec, options)) {
    return WrongImage(
        fmt::format("an image of {} patches, but the tower supports at most {}; send a smaller one",
                    patches, MostPatches(spec, options)));
  }
  const int64_t positions =
      spec.positions == TowerSpec::Positions::kAxes ? spec.position_shape[1] : patches;
  if (std::max(height, width) > positions)
    return WrongImage(fmt::format("an image with a side of more than {} patches", positions));
  int64_t rows = units * patches / spec.group();
  if (!spec.newline_tensor.empty()) {
    const auto [top, left, kept_height, kept_width] = image.kept;
    const int64_t down = height / spec.merge * image.tiles[0];
    const int64_t across = width / spec.merge * image.tiles[1];
    if (std::min({top, left, kept_height, kept_width}) < 0 || top + kept_height > down ||
        left + kept_width > across || units != int64_t{image.tiles[0]} * image.tiles[1] + 1) {
      return WrongImage("an image whose kept area is not inside its tiles");
    }
    rows = patches / spec.group() + int64_t{kept_height} * (kept_width + 1);
  }
  const auto marked = std::count_if(image.is_embedding.begin(), image.is_embedding.end(),
                                    [](uint8_t mark) { return mark != 0; });
  if (rows != image.num_embeddings || rows != marked) {
    return WrongImage(
        fmt::format("an image with {} tokens for {} rows of the tower", marked, rows));
  }
  return {};
}

// Arranges patches in the tower's order: merged rows window by window or, without windows, row by
// row. Within a merged row, patches are arranged row by row.
void ImageTower::Lay(int64_t height, int64_t width) {
  const int64_t merge = spec_.merge;
  const int64_t cell_rows = height / merge, cell_cols = width / merge;
  const int64_t across = spec_.window == 0 ? std::max(cell_rows, cell_cols) : spec_.window / merge;
  step_.num_patches = height * width;
  for (std::vector<int32_t>* one :
       {&step_.patch_rows, &step_.patch_cols, &step_.sources, &order_, &window_rows_})
    one->clear();
  const auto add_cell = [&](int64_t row, int64_t col) {
    order_.push_back(static_cast<int32_t>(row * cell_cols + col));
    for (int64_t i = 0; i < merge * merge; ++i) {
      const int64_t y = row * merge + i / merge, x = col * merge + i % merge;
      step_.patch_rows.push_back(static_cast<int32_t>(y));
      step_.patch_cols.push_back(static_cast<int32_t>(x));
      const bool is_block = spec_.input == TowerSpec::Input::kBlockPatches;
      step_.sources.push_back(static_cast<int32_t>(
          is_block ? (row * cell_cols + col) * merge * merge + i : y * width + x));
    }
  };
  for (int64_t top = 0; top < cell_rows; top += across) {
    for (int64_t left = 0; left < cell_cols; left += across) {
      const size_t before = step_.patch_rows.size();
      for (int64_t row = top; row < std::min(top + across, cell_rows); ++row) {
        for (int64_t col = left; col < std::min(left + across, cell_cols); ++col)
          add_cell(row, col);
      }
      window_rows_.push_back(static_cast<int32_t>(step_.patch_rows.size() - before));
    }
  }
  LayPositions(height, width);
  LayWindows();
}

void ImageTower::LayPositions(int64_t height, int64_t width) {
  using Positions = TowerSpec::Positions;
  const auto rows = static_cast<size_t>(step_.num_patches + (spec_.has_class ? 1 : 0));
  positions_.assign(rows, 0);
  rope_positions_.assign(2 * rows, 0);
  step_.position_rows.clear();
  step_.position_weights.clear();
  const auto add = [&](int64_t row, float weight) {
    step_.position_rows.push_back(static_cast<int32_t>(row));
    step_.position_weights.push_back(weight);
  };
  // Taps of each row and each column, in a square table.
  std::vector<Taps> down, along;
  int64_t side = 0;
  if (spec_.reads_square()) {
    const std::vector<int64_t>& shape = spec_.position_shape;
    side = shape.size() == 3 ? shape[0] : std::lround(std::sqrt(static_cast<double>(shape[0])));
    for (int64_t y = 0; y < height; ++y) down.push_back(TapsOf(spec_.positions, y, height, side));
    for (int64_t x = 0; x < width; ++x) along.push_back(TapsOf(spec_.positions, x, width, side));
  }
  for (size_t i = 0; i < static_cast<size_t>(step_.num_patches); ++i) {
    const int64_t y = step_.patch_rows[i], x = step_.patch_cols[i];
    rope_positions_[i] = static_cast<int32_t>(y) + spec_.rope_first;
    rope_positions_[rows + i] = static_cast<int32_t>(x) + spec_.rope_first;
    switch (spec_.positions) {
      case Positions::kNone: break;
      case Positions::kOrdinal: add(y * width + x, 1); break;
      case Positions::kClassFirst: add(1 + y * width + x, 1); break;
      case Positions::kAxes:
        add(x, 1);
        add(spec_.position_shape[1] + y, 1);
        break;
      default: {
        const Taps& rows_of = down[static_cast<size_t>(y)];
        const Taps& cols_of = along[static_cast<size_t>(x)];
        for (size_t r = 0; r < rows_of.rows.size(); ++r) {
          for (size_t c = 0; c < cols_of.rows.size(); ++c) {
            add(rows_of.rows[r] * side + cols_of.rows[c], rows_of.weights[r] * cols_of.weights[c]);
          }
        }
      }
    }
  }
  step_.position_entries = std::ssize(step_.position_rows) / step_.num_patches;
  if (!spec_.has_class) return;
  if (spec_.positions == Positions::kOrdinal) add(step_.num_patches, 1);
  if (spec_.positions == Positions::kClassFirst) add(0, 1);
}

// Sets up the attention slices. Group 0 has one slice for the whole image. With windows, it also
// has empty slices, so that both groups have the same number of slices. Group 1 has a slice per
// window.
void ImageTower::LayWindows() {
  const auto rows = static_cast<int32_t>(step_.num_patches + (spec_.has_class ? 1 : 0));
  slices_.clear();
  slices_.push_back(
      {.first_row = 0, .num_tokens = rows, .context = 0, .block_table = tables_.data()});
  if (spec_.window == 0) return;
  slices_.resize(window_rows_.size(), {.first_row = rows});
  int64_t first_row = 0, block = 0;
  for (const int32_t count : window_rows_) {
    slices_.push_back({.first_row = first_row,
                       .num_tokens = count,
                       .context = 0,
                       .block_table = tables_.data() + block});
    first_row += count;
    block += (count + kTowerBlock - 1) / kTowerBlock;
  }
  CHECK_LE(block, std::ssize(tables_));
}

StepInput ImageTower::Input() const {
  StepInput input;
  input.positions = positions_;
  input.rope_positions = rope_positions_;
  input.slices = slices_;
  input.num_groups = spec_.window == 0 ? 1 : 2;
  return input;
}

void ImageTower::Run(ThreadPool& pool) {
  const StepInput input = Input();
  const CpuStep step{.pool = pool, .input = input, .cache = cache_.get(), .tower = &step_};
  const auto end = static_cast<int32_t>(executor_.program().ops.size());
  executor_.Run(0, end, std::ssize(positions_), step);
}

template <typename RunUnit, typename EndRow>
void ImageTower::VisitUnits(const ProcessedImage& image, const RunUnit& run, const EndRow& end) {
  const auto [height, width] = GridOf(spec_, image);
  const int64_t units = NumUnits(spec_, image);
  Lay(height, width);
  step_.is_pixels = spec_.input == TowerSpec::Input::kPixels;
  step_.patch = spec_.patch;
  const size_t axes = image.shape.size();
  if (step_.is_pixels) {
    step_.height = image.shape[axes - 2];
    step_.width = image.shape[axes - 1];
  }
  const int64_t numbers = UnitNumbers(spec_, image, {height, width});
  const int64_t merged = std::ssize(order_);
  for (int64_t unit = 0; unit < units; ++unit) {
    step_.values = image.values.data() + unit * numbers;
    LayTargets(image, unit, merged);
    run();
  }
  if (spec_.newline_tensor.empty()) return;
  for (int64_t row = 1; row <= image.kept[2]; ++row)
    end(static_cast<size_t>(merged + row * (image.kept[3] + 1) - 1));
}

void ImageTower::Encode(ThreadPool& pool, const ProcessedImage& image,
                        std::span<float* const> rows) {
  CHECK(!is_on_device());
  CHECK_EQ(std::ssize(rows), int64_t{image.num_embeddings});
  const auto run = [&] {
    step_.targets.clear();
    for (const int32_t target : targets_)
      step_.targets.push_back(target < 0 ? nullptr : rows[static_cast<size_t>(target)]);
    Run(pool);
  };
  VisitUnits(image, run, [&](size_t row) { std::ranges::copy(weights_->newline, rows[row]); });
}

void ImageTower::EncodeTo(ThreadPool& pool, const ProcessedImage& image,
                          std::span<const int32_t> places) {
  CHECK(is_on_device());
  CHECK_EQ(std::ssize(places), int64_t{image.num_embeddings});
  const auto run = [&] {
    step_.targets.clear();
    for (size_t row = 0; row < positions_.size(); ++row)
      step_.targets.push_back(body_->rows() + static_cast<int64_t>(row) * spec_.hidden);
    Run(pool);
    for (int32_t& target : targets_) {
      if (target >= 0) target = places[static_cast<size_t>(target)];
    }
    body_->Run(Input(), targets_, images_.rows, spec_.row_width());
  };
  VisitUnits(image, run, [&](size_t row) {
    body_->Put(weights_->newline, images_.rows + places[row] * spec_.row_width());
  });
}

void ImageTower::LayTargets(const ProcessedImage& image, int64_t unit, int64_t merged) {
  targets_.clear();
  const bool is_apart = spec_.newline_tensor.empty() || unit == 0;
  const int64_t side = GridOf(spec_, image).width / spec_.merge;
  const auto [top, left, kept_height, kept_width] = image.kept;
  for (const int32_t place : order_) {
    if (is_apart) {
      targets_.push_back(static_cast<int32_t>(unit * merged + place));
      continue;
    }
    const int64_t tile = unit - 1;
    const int64_t y = tile / image.tiles[1] * side + place / side - top;
    const int64_t x = tile % image.tiles[1] * side + place % side - left;
    const bool is_kept = y >= 0 && y < kept_height && x >= 0 && x < kept_width;
    targets_.push_back(is_kept ? static_cast<int32_t>(merged + y * (kept_width + 1) + x) : -1);
  }
}

}  // namespace sluice
