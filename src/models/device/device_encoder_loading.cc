#include "models/device/device_encoder_loading.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "device/uploader.h"
#include "kernels/cuda/device_kernel_tables.h"
#include "models/device/device_encoder.h"
#include "models/device/device_encoder_weights.h"
#include "models/device/device_executor.h"
#include "models/device/device_options.h"
#include "models/device/device_sink.h"
#include "models/encoder/encoder_classifier.h"
#include "models/encoder/encoder_model.h"
#include "models/program/build_encoder.h"
#include "models/weight_loader.h"

namespace sluice {
namespace {

// A program with its weights and buffer offsets. `memory`: the memory of the weights.
struct PlacedEncoder {
  program::Program program;
  DeviceProgramWeights weights;
  DevicePlan plan;
};

PlacedEncoder EncoderProgramFor(const EncoderSpec& spec, const ModelOptions& options,
                                bool classifies, const DeviceInfo& device,
                                const ParameterList& list, const EncoderWeights& loaded,
                                const DeviceWeightLayout& layout, std::byte* memory,
                                bool keeps_apart = false) {
  const program::DeviceTarget target;
  PlacedEncoder placed;
  placed.program = program::BuildEncoder({.spec = spec,
                                          .options = options,
                                          .classifies = classifies,
                                          .device = &target,
                                          .weights = loaded});
  placed.weights = PlaceWeights(placed.program, list, layout, DeviceRounding(), memory);
  SizeProductBuffers(placed.program, placed.weights, device, LinearOptionsOf(options));
  AddStepInputs(placed.program, DeviceEncoderStep::MaxBytes(spec, options));
  placed.plan = DevicePlan::For(placed.program, keeps_apart);
  return placed;
}

Result<EncoderSpec> EncoderSpecFor(const ModelConfig& config, const ModelOptions& options) {
  RETURN_IF_ERROR(CheckDeviceOptions(options));
  ASSIGN_OR_RETURN(EncoderSpec spec, ReadEncoderSpec(config.raw));
  if (spec.hidden_size > device::kMostLayerNormCols) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("hidden_size is {}: for encoders, devices support up to {}; serve this "
                            "model on the CPU",
                            spec.hidden_size, device::kMostLayerNormCols),
                "hidden_size");
  }
  return spec;
}

// Returns the parameters that are stored on the device: all except the classifier's.
ParameterList HeldByDevice(ParameterList list, const ClassifierWeights& classifier) {
  const std::vector<float>* const kept[] = {&classifier.dense,       &classifier.dense_bias,
                                            &classifier.norm.weight, &classifier.norm.bias,
                                            &classifier.out,         &classifier.out_bias};
  std::erase_if(list.vectors, [&](const VectorParameter& vector) {
    return std::ranges::find(kept, vector.target) != std::end(kept);
  });
  return list;
}

}  // namespace

Result<ModelMemory> PlanDeviceEncoder(const ModelConfig& config, const ModelOptions& options,
                                      const DeviceInfo& device) {
  ASSIGN_OR_RETURN(const EncoderSpec spec, EncoderSpecFor(config, options));
  EncoderWeights unfilled;
  const ParameterList held = HeldByDevice(
      ListEncoderParameters(spec, NumScores(config), /*prefix=*/"", unfilled), unfilled.classifier);
  ASSIGN_OR_RETURN(const DeviceWeightLayout layout,
                   LayOutEncoder(spec, held, PlannedFormats(held, *config.scheme)));
  // A dummy address, because only sizes are needed.
  auto* const nowhere = std::bit_cast<std::byte*>(DevicePool::kAlignment);
  ModelMemory memory;
  memory.weight_bytes = memory.token_weight_bytes = layout.total_bytes();
  memory.workspace_bytes = EncoderProgramFor(spec, options, NumScores(config) > 0, device, held,
                                             unfilled, layout, nowhere)
                               .plan.total_bytes;
  PlanEncoderCache(spec, options, memory);
  return memory;
}

Result<std::unique_ptr<Model>> LoadDeviceEncoder(Device& device, DevicePool& pool,
                                                 ThreadPool& threads,
                                                 const std::filesystem::path& folder,
                                                 ModelConfig config, const ModelOptions& options,
                                                 const LoadProgress& progress) {
  ASSIGN_OR_RETURN(const EncoderSpec spec, EncoderSpecFor(config, options));
  const QuantizationScheme& scheme = *config.scheme;
  std::optional<Checkpoint> checkpoint;
  if (options.load_format != ModelOptions::LoadFormat::kDummy) {
    ASSIGN_OR_RETURN(checkpoint, Checkpoint::Open(folder));
  }
  EncoderWeights loaded;
  const ParameterList list = ListEncoderParameters(
      spec, NumScores(config), checkpoint ? EncoderPrefix(*checkpoint) : "", loaded);
  const ParameterList held = HeldByDevice(list, loaded.classifier);
  std::vector<DataFormat> formats;
  if (checkpoint) {
    RETURN_IF_ERROR(CheckEncoderParameters(list, *checkpoint, scheme));
    ASSIGN_OR_RETURN(formats, StoredFormats(held, *checkpoint, scheme));
  } else {
    formats = PlannedFormats(held, scheme);
  }
  ASSIGN_OR_RETURN(DeviceWeightLayout layout,
                   LayOutEncoder(spec, held, formats, pool.keeps_arrays_apart()));
  ASSIGN_OR_RETURN(void* const weights_memory,
                   pool.Take(layout.total_bytes(), "the weights", layout.gaps()));
  auto* const memory = static_cast<std::byte*>(weights_memory);
  const device::DeviceKernels& kernels = device::KernelsOf(device.info().kind);
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceStream> stream, device.CreateStream());
  {
    ASSIGN_OR_RETURN(Uploader uploader, Uploader::Create(device));
    RETURN_IF_ERROR(FillDeviceWeights({uploader, threads, kernels, *stream}, list, held.vectors,
                                      EncoderRopeTables(spec), checkpoint ? &*checkpoint : nullptr,
                                      scheme, options, progress, layout, memory));
  }
  PlacedEncoder placed = EncoderProgramFor(spec, options, NumScores(config) > 0, device.info(),
                                           held, loaded, layout, memory, pool.keeps_arrays_apart());
  ASSIGN_OR_RETURN(void* const workspace,
                   pool.Take(placed.plan.total_bytes, "the workspace of a step", placed.plan.gaps));
  auto* const workspace_bytes = static_cast<std::byte*>(workspace);
  ASSIGN_OR_RETURN(auto linear,
                   device::DeviceLinear::Create(device, kernels, LinearOptionsOf(options)));
  ASSIGN_OR_RETURN(DeviceEncoderStep inputs,
                   DeviceEncoderStep::Create(
                       device, spec, options,
                       workspace_bytes + placed.plan.offsets[static_cast<size_t>(
                                             program::FindBuffer(placed.program, "step_inputs"))]));
  auto executor = std::make_unique<DeviceExecutor>(
      std::move(placed.program), std::move(placed.weights), std::move(placed.plan), workspace_bytes,
      DeviceExecutor::Parts{.kernels = kernels,
                            .stream = *stream,
                            .linear = *linear,
                            .op_times = options.op_times.get()});
  FillEncoderBiases(spec, loaded);
  auto model = std::make_unique<DeviceEncoder>(
      std::move(config), options, spec,
      DeviceEncoder::Parts{.device = device,
                           .stream = std::move(stream),
                           .linear = std::move(linear),
                           .executor = std::move(executor),
                           .inputs = std::move(inputs),
                           .classifier = std::move(loaded.classifier)});
  RETURN_IF_ERROR(model->Tune());
  return model;
}

}  // namespace sluice
