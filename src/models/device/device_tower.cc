#include "models/device/device_tower.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "device/uploader.h"
#include "kernels/cuda/device_kernel_tables.h"
#include "models/device/device_options.h"
#include "models/device/device_sink.h"
#include "models/kv_layout.h"
#include "models/program/build_tower.h"
#include "models/weight_loader.h"

namespace sluice {
namespace {

using StepKind = ProjectorStep::Kind;

constexpr std::string_view kConstants = "constants";

// Returns the name of a part of the spec that no device kernel computes; "" if kernels compute all
// parts.
std::string MissingKernel(const TowerSpec& spec) {
  if (spec.clips) return "linear layers whose inputs and results are clamped";
  if (spec.features.size() > 1) return "concatenated results of several layers";
  if (spec.hidden > device::kMostLayerNormCols)
    return fmt::format("rows of more than {} numbers", device::kMostLayerNormCols);
  if (spec.head_dim % 8 != 0 || spec.head_dim < 16 || spec.head_dim > 256)
    return fmt::format("heads of {} numbers", spec.head_dim);
  if (spec.hidden % 8 != 0 || spec.out_width % 4 != 0)
    return "a hidden size that is not a multiple of 8, or an output width that is not a multiple "
           "of 4";
  if (std::ssize(spec.rope_axes) > device::kMostAxialFrequencies)
    return fmt::format("more than {} frequencies", device::kMostAxialFrequencies);
  std::vector<const std::vector<ProjectorStep>*> projectors = {&spec.projector};
  for (const TowerLevel& level : spec.levels) projectors.push_back(&level.projector);
  for (const auto* const projector : projectors) {
    for (const ProjectorStep& step : *projector) {
      if (step.kind == StepKind::kLayerNorm &&
          spec.hidden * spec.group() > device::kMostLayerNormCols)
        return fmt::format("layer norms of more than {} numbers per row",
                           device::kMostLayerNormCols);
      if (step.width % 8 != 0) return "projections whose output width is not a multiple of 8";
    }
  }
  return "";
}

Status CheckSpec(const TowerSpec& spec) {
  const std::string missing = MissingKernel(spec);
  if (missing.empty()) return {};
  return Fail(ErrorCode::kUnsupported,
              fmt::format("the image tower has {}, for which devices have no kernel", missing));
}

std::vector<std::vector<float>> RopeTablesOf(const TowerSpec& spec) {
  if (spec.rope_frequencies.empty()) return {};
  return {spec.rope_frequencies};
}

// A program with its weights and buffer offsets. `memory`: the memory of the weights.
struct PlacedTower {
  program::Program program;
  DeviceProgramWeights weights;
  DevicePlan plan;
};

// Lists the vectors that no file contains, such as the ones that serve as weights of a norm without
// weights. They are placed in the buffer kConstants. Calls visit(index in the program's vectors,
// offset in the buffer).
template <typename Visit>
int64_t VisitConstants(const program::Program& program, const DeviceProgramWeights& weights,
                       const Visit& visit) {
  int64_t bytes = 0;
  for (size_t i = 0; i < program.vectors.size(); ++i) {
    if (weights.vectors[i] != nullptr || program.vectors[i]->empty()) continue;
    visit(i, bytes);
    bytes += DevicePool::Padded(std::ssize(*program.vectors[i]) * int64_t{sizeof(float)});
  }
  return bytes;
}

PlacedTower ProgramFor(const TowerSpec& spec, const TowerSizes& sizes, const DeviceInfo& device,
                       const ParameterList& list, const TowerWeights& loaded,
                       const DeviceWeightLayout& layout, std::byte* memory,
                       bool keeps_apart = false) {
  const program::DeviceTarget target;
  PlacedTower placed;
  placed.program = program::BuildTower({.spec = spec,
                                        .options = sizes.options,
                                        .weights = loaded,
                                        .part = program::TowerPart::kBody,
                                        .device = &target});
  placed.weights = PlaceWeights(placed.program, list, layout, DeviceRounding(), memory);
  SizeProductBuffers(placed.program, placed.weights, device, LinearOptionsOf(sizes.options));
  AddStepInputs(placed.program, DeviceTowerStep::MaxBytes(spec, sizes.options, sizes.num_blocks));
  placed.program.buffers.push_back(
      {.name = std::string(kConstants),
       .extent = program::Extent::kOnce,
       .row_bytes = std::max<int64_t>(
           DevicePool::kAlignment,
           VisitConstants(placed.program, placed.weights, [](size_t, int64_t) {})),
       .is_kept = true});
  placed.plan = DevicePlan::For(placed.program, keeps_apart);
  return placed;
}

int64_t CacheBytes(const program::Program& program, const TowerSizes& sizes) {
  return sizes.num_blocks *
         KvCache::BytesPerBlock(KvLayoutOf(program.attentions.front(), sizes.options), 1);
}

}  // namespace

KvGroups TowerGroups(const TowerSpec& spec) {
  KvGroups groups = KvGroups::Uniform(1);
  if (spec.window > 0) {
    groups.spans.resize(2);
    groups.places = {{.group = 0, .slot = 0}, {.group = 1, .slot = 0}};
  }
  return groups;
}

namespace {

bool IsOfFront(const std::vector<float>* target, const TowerWeights& weights) {
  const std::vector<float>* const front[] = {&weights.patch.bias,      &weights.positions,
                                             &weights.class_row,       &weights.patch_norm.weight,
                                             &weights.patch_norm.bias, &weights.first_norm.weight,
                                             &weights.first_norm.bias, &weights.newline};
  return std::ranges::find(front, target) != std::end(front);
}

ParameterList Part(ParameterList list, const TowerWeights& weights, bool is_front) {
  std::erase_if(list.matrices, [&](const MatrixParameter& matrix) {
    return (matrix.target == &weights.patch.matrix) != is_front;
  });
  std::erase_if(list.vectors, [&](const VectorParameter& vector) {
    return IsOfFront(vector.target, weights) != is_front;
  });
  return list;
}

}  // namespace

ParameterList TowerBodyParameters(ParameterList list, const TowerWeights& weights) {
  return Part(std::move(list), weights, /*is_front=*/false);
}

ParameterList TowerFrontParameters(ParameterList list, const TowerWeights& weights) {
  return Part(std::move(list), weights, /*is_front=*/true);
}

Result<DeviceTowerMemory> DeviceTower::Plan(const TowerSpec& spec, const QuantizationScheme& scheme,
                                            const TowerSizes& sizes, const DeviceInfo& device) {
  RETURN_IF_ERROR(CheckSpec(spec));
  TowerWeights unfilled;
  const ParameterList list = TowerBodyParameters(ListTowerParameters(spec, unfilled), unfilled);
  ASSIGN_OR_RETURN(const DeviceWeightLayout layout,
                   DeviceWeightLayout::For(RopeTablesOf(spec), list, PlannedFormats(list, scheme)));
  // A dummy address: only sizes are needed.
  auto* const nowhere = std::bit_cast<std::byte*>(DevicePool::kAlignment);
  const PlacedTower placed = ProgramFor(spec, sizes, device, list, unfilled, layout, nowhere);
  return DeviceTowerMemory{
      .weight_bytes = DevicePool::Padded(layout.total_bytes()),
      .workspace_bytes = DevicePool::Padded(placed.plan.total_bytes) +
                         DevicePool::Padded(CacheBytes(placed.program, sizes))};
}

Result<std::unique_ptr<DeviceTower>> DeviceTower::Load(Device& device, DevicePool& pool,
                                                       DeviceStream& stream, ThreadPool& threads,
                                                       const Checkpoint* checkpoint,
                                                       const TowerSpec& spec,
                                                       const QuantizationScheme& scheme,
                                                       const TowerSizes& sizes) {
  RETURN_IF_ERROR(CheckSpec(spec));
  TowerWeights loaded;
  const ParameterList list = TowerBodyParameters(ListTowerParameters(spec, loaded), loaded);
  std::vector<DataFormat> formats;
  if (checkpoint != nullptr) {
    ASSIGN_OR_RETURN(formats, StoredFormats(list, *checkpoint, scheme));
  } else {
    formats = PlannedFormats(list, scheme);
  }
  const std::vector<std::vector<float>> tables = RopeTablesOf(spec);
  ASSIGN_OR_RETURN(DeviceWeightLayout layout,
                   DeviceWeightLayout::For(tables, list, formats, pool.keeps_arrays_apart()));
  ASSIGN_OR_RETURN(
      void* const weights_memory,
      pool.Take(layout.total_bytes(), "the weights of the image tower", layout.gaps()));
  auto* const memory = static_cast<std::byte*>(weights_memory);
  const device::DeviceKernels& kernels = device::KernelsOf(device.info().kind);
  {
    ASSIGN_OR_RETURN(Uploader uploader, Uploader::Create(device));
    RETURN_IF_ERROR(FillDeviceWeights({uploader, threads, kernels, stream}, list, list.vectors,
                                      tables, checkpoint, scheme, sizes.options, {}, layout,
                                      memory));
  }
  PlacedTower placed = ProgramFor(spec, sizes, device.info(), list, loaded, layout, memory,
                                  pool.keeps_arrays_apart());
  ASSIGN_OR_RETURN(
      void* const workspace,
      pool.Take(placed.plan.total_bytes, "the workspace of the image tower", placed.plan.gaps));
  auto* const workspace_bytes = static_cast<std::byte*>(workspace);
  const auto offset_of = [&](std::string_view buffer) {
    return placed.plan.offsets[static_cast<size_t>(program::FindBuffer(placed.program, buffer))];
  };
  std::byte* const constants = workspace_bytes + offset_of(kConstants);
  VisitConstants(placed.program, placed.weights, [&](size_t index, int64_t offset) {
    const std::vector<float>& vector = *placed.program.vectors[index];
    stream.CopyToDevice(constants + offset, vector.data(),
                        std::ssize(vector) * int64_t{sizeof(float)});
  });
  RETURN_IF_ERROR(stream.Synchronize());
  // Called after the weights have addresses: a vector that has an address is not a constant.
  std::vector<std::pair<size_t, int64_t>> places;
  VisitConstants(placed.program, placed.weights,
                 [&](size_t index, int64_t offset) { places.emplace_back(index, offset); });
  for (const auto& [index, offset] : places)
    placed.weights.vectors[index] = reinterpret_cast<const float*>(constants + offset);
  const int64_t cache_bytes = CacheBytes(placed.program, sizes);
  ASSIGN_OR_RETURN(void* const keys, pool.Take(cache_bytes, "keys and values of the image tower"));
  KvCache cache = KvCache::Wrap(KvLayoutOf(placed.program.attentions.front(), sizes.options),
                                TowerGroups(spec), sizes.num_blocks, keys);
  ASSIGN_OR_RETURN(auto linear,
                   device::DeviceLinear::Create(device, kernels, LinearOptionsOf(sizes.options)));
  ASSIGN_OR_RETURN(DeviceTowerStep inputs,
                   DeviceTowerStep::Create(device, spec, sizes.options, sizes.num_blocks,
                                           workspace_bytes + offset_of("step_inputs")));
  ASSIGN_OR_RETURN(DeviceBuffer rows,
                   device.AllocatePinned(sizes.options.max_rows * spec.hidden * 4,
                                         "the embedded patches of an image"));
  auto executor = std::make_unique<DeviceExecutor>(
      std::move(placed.program), std::move(placed.weights), std::move(placed.plan), workspace_bytes,
      DeviceExecutor::Parts{.kernels = kernels, .stream = stream, .linear = *linear});
  RETURN_IF_ERROR(executor->Tune());
  return std::unique_ptr<DeviceTower>(new DeviceTower(spec, Parts{.stream = stream,
                                                                  .linear = std::move(linear),
                                                                  .executor = std::move(executor),
                                                                  .inputs = std::move(inputs),
                                                                  .cache = std::move(cache),
                                                                  .rows = std::move(rows)}));
}

DeviceTower::DeviceTower(const TowerSpec& spec, Parts parts)
    : hidden_(spec.hidden),
      stream_(parts.stream),
      linear_(std::move(parts.linear)),
      executor_(std::move(parts.executor)),
      inputs_(std::move(parts.inputs)),
      cache_(std::move(parts.cache)),
      rows_(std::move(parts.rows)) {}

void DeviceTower::Run(const StepInput& input, std::span<const int32_t> targets, float* image_rows,
                      int64_t stride) {
  const auto rows = std::ssize(input.positions);
  stream_.CopyToDevice(executor_->BufferAt("residual"), rows_.data(), rows * hidden_ * 4);
  inputs_.Send(stream_, input, targets);
  executor_->Run({.inputs = &inputs_,
                  .cache = &cache_,
                  .rows = rows,
                  .image_rows = image_rows,
                  .image_stride = stride});
  if (const Status status = stream_.Synchronize(); !status)
    throw std::runtime_error(status.error().message);
}

void DeviceTower::Put(std::span<const float> values, float* row) {
  stream_.CopyToDevice(row, values.data(), static_cast<int64_t>(values.size_bytes()));
  if (const Status status = stream_.Synchronize(); !status)
    throw std::runtime_error(status.error().message);
}

}  // namespace sluice
