#include "models/device/device_options.h"

#include <fmt/format.h>

#include "base/check.h"
#include "models/matrix_source.h"
#include "models/weight_loader.h"

namespace sluice {

Status CheckDeviceOptions(const ModelOptions& options) {
  if (options.compute_type != kDeviceComputeType) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("the CUDA backend computes in bfloat16, not in {}: use --dtype "
                            "bfloat16 or auto, or serve on the CPU",
                            ElementTypeName(options.compute_type)),
                "dtype");
  }
  if (options.kv_type != ElementType::kBF16 && options.kv_type != ElementType::kF8E4M3) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("the CUDA backend stores keys and values in bfloat16 or fp8, not in {}: "
                    "use --kv-cache-dtype bfloat16, fp8 or auto, or serve on the CPU",
                    ElementTypeName(options.kv_type)),
        "kv_cache_dtype");
  }
  if (options.lora.num_slots > 0 && options.lora.type != ElementType::kBF16) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("the CUDA backend stores LoRA adapters in bfloat16, not in {}: use "
                            "--lora-dtype bfloat16 or auto, or serve on the CPU",
                            ElementTypeName(options.lora.type)),
                "lora_dtype");
  }
  CHECK(options.block_size > 0 && options.max_rows > 0 && options.max_slices > 0 &&
        options.max_context > 0 && options.max_logit_rows > 0);
  return {};
}

device::DeviceLinearOptions LinearOptionsOf(const ModelOptions& options) {
  device::DeviceLinearOptions linear;
  linear.batch_invariant = options.batch_invariant;
  linear.fast_accumulation = options.fast_accumulation;
  linear.tactics = options.linear_tactics;
  linear.library = options.linear_library;
  linear.packs_apart = options.packs_rows_apart;
  return linear;
}

std::vector<DataFormat> PlannedFormats(const ParameterList& list,
                                       const QuantizationScheme& scheme) {
  std::vector<DataFormat> formats;
  for (const MatrixParameter& matrix : list.matrices)
    formats.push_back(PlannedMatrixFormat(matrix, scheme, kDeviceComputeType));
  return formats;
}

Result<std::vector<DataFormat>> StoredFormats(const ParameterList& list,
                                              const Checkpoint& checkpoint,
                                              const QuantizationScheme& scheme) {
  std::vector<DataFormat> formats;
  for (const MatrixParameter& matrix : list.matrices) {
    ASSIGN_OR_RETURN(const MatrixSource source,
                     FindMatrix(matrix, checkpoint, scheme, kDeviceComputeType));
    formats.push_back(source.packed);
  }
  return formats;
}

}  // namespace sluice
