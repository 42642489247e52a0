#include "kernels/cuda/device_kernel_tables.h"

#include "base/check.h"

namespace sluice::device {
namespace {

#define SLUICE_KERNEL_TABLE(backend)                                                             \
  {                                                                                              \
    backend::LaunchEmbedding, backend::LaunchAddEmbeddings, backend::LaunchLayerNorm,            \
        backend::LaunchActivate, backend::LaunchRmsNorm, backend::LaunchRopeTable,               \
        backend::LaunchRopeAppend, backend::LaunchAttention, backend::LaunchSiluMul,             \
        backend::LaunchConvertRows, backend::LaunchPackNvF4, backend::LaunchPackMxF4,            \
        backend::LaunchTakeRows, backend::LaunchTakeColumns, backend::LaunchJoinColumns,         \
        backend::LaunchLinear, backend::LaunchGroupedLinear, backend::LaunchLinearGroups,        \
        backend::LaunchExpandWeights, backend::LaunchScaleResults, backend::LaunchRouter,        \
        backend::LaunchGroupByExpert, backend::LaunchGatherRows, backend::LaunchCombineExperts,  \
        backend::LaunchAddLora, backend::LaunchSampleRows, backend::LaunchRandomCodes,           \
        backend::LaunchRandomScales, backend::LaunchInstruction, backend::LaunchLayerEmbeddings, \
        backend::LaunchCapLogits, backend::LaunchHeadSquares, backend::LaunchClampedSwiglu,      \
        backend::LaunchLatentAppend, backend::LaunchHeadProducts, backend::LaunchConvolve,       \
        backend::LaunchUpdateState, backend::LaunchGateStates, backend::LaunchGateRows,          \
        backend::LaunchPlaceRows, backend::LaunchStandardize, backend::LaunchMergePatches,       \
        backend::LaunchIndexAppend, backend::LaunchSelectPositions                               \
  }

constexpr DeviceKernels kEmulated = SLUICE_KERNEL_TABLE(emulated);
#ifdef SLUICE_CUDA
constexpr DeviceKernels kCuda = SLUICE_KERNEL_TABLE(cuda);
#endif
#ifdef SLUICE_HIP
constexpr DeviceKernels kHip = SLUICE_KERNEL_TABLE(hip);
#endif

void CheckIsEmulated(DeviceKind kind) {
  CHECK(kind == DeviceKind::kEmulated, "this program has no kernels for {}", DeviceKindName(kind));
}

}  // namespace

const DeviceKernels& KernelsOf(DeviceKind kind) {
#ifdef SLUICE_CUDA
  if (kind == DeviceKind::kCuda) return kCuda;
#endif
#ifdef SLUICE_HIP
  if (kind == DeviceKind::kHip) return kHip;
#endif
  CheckIsEmulated(kind);
  return kEmulated;
}

ExchangeColumns ExchangeColumnsOf(DeviceKind kind) {
#ifdef SLUICE_CUDA
  if (kind == DeviceKind::kCuda) return cuda::LaunchExchangeColumns;
#endif
#ifdef SLUICE_HIP
  if (kind == DeviceKind::kHip) return hip::LaunchExchangeColumns;
#endif
  CheckIsEmulated(kind);
  return emulated::LaunchExchangeColumns;
}

}  // namespace sluice::device
