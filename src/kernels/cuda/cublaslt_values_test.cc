// Compares the constants of cublaslt_library.h with cuBLASLt's own header, if it is installed.
#include <cstddef>
#include <type_traits>

#include <gtest/gtest.h>

#include "kernels/cuda/cublaslt_library.h"

#if __has_include(<cublasLt.h>)

#include <cublasLt.h>

namespace sluice::device::cublaslt {
namespace {

static_assert(kSuccess == CUBLAS_STATUS_SUCCESS);
static_assert(kInvalidValue == CUBLAS_STATUS_INVALID_VALUE);
static_assert(kArchMismatch == CUBLAS_STATUS_ARCH_MISMATCH);
static_assert(kNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(kTypeF32 == CUDA_R_32F && kTypeBF16 == CUDA_R_16BF && kTypeE4M3 == CUDA_R_8F_E4M3);
static_assert(kComputeF32 == CUBLAS_COMPUTE_32F);
static_assert(kPlain == CUBLAS_OP_N && kTransposed == CUBLAS_OP_T);
static_assert(kTransposeA == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(kTransposeB == CUBLASLT_MATMUL_DESC_TRANSB);
static_assert(kScalePointerA == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
static_assert(kScalePointerB == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
static_assert(kFastAccumulation == CUBLASLT_MATMUL_DESC_FAST_ACCUM);
static_assert(kMaxWorkspace == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(kAlignmentA == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(kAlignmentB == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
static_assert(kAlignmentC == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
static_assert(kAlignmentD == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
#if CUBLAS_VERSION >= 120900
static_assert(kScaleModeA == CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
static_assert(kScaleModeB == CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
static_assert(kScaleScalar == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F);
static_assert(kScaleGroups16 == CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3);
static_assert(kTypeE2M1 == CUDA_R_4F_E2M1);
static_assert(kScaleOuterVector == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
#endif
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(Heuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(Heuristic, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(Heuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(offsetof(Heuristic, waves) == offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));
static_assert(sizeof(cublasStatus_t) == sizeof(int) && sizeof(cudaDataType) == sizeof(int));

// Whether functions with parameters Ours... and Theirs... have the same calling convention:
// parameters have equal sizes, and pointers correspond to pointers.
template <typename Ours, typename Theirs>
constexpr bool kSameArgument =
    sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>;
template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};
template <typename R, typename... Ours, typename S, typename... Theirs>
requires(sizeof...(Ours) == sizeof...(Theirs)) struct SameCall<R (*)(Ours...), S (*)(Theirs...)>
    : std::bool_constant<kSameArgument<R, S> && (kSameArgument<Ours, Theirs> && ...)> {
};

#define EXPECT_SAME_CALL(ours, theirs) \
  static_assert(SameCall<decltype(Functions::ours), decltype(&(theirs))>::value)
EXPECT_SAME_CALL(get_version, cublasLtGetVersion);
EXPECT_SAME_CALL(status_name, cublasLtGetStatusName);
EXPECT_SAME_CALL(create, cublasLtCreate);
EXPECT_SAME_CALL(destroy, cublasLtDestroy);
EXPECT_SAME_CALL(layout_create, cublasLtMatrixLayoutCreate);
EXPECT_SAME_CALL(layout_destroy, cublasLtMatrixLayoutDestroy);
EXPECT_SAME_CALL(operation_create, cublasLtMatmulDescCreate);
EXPECT_SAME_CALL(operation_destroy, cublasLtMatmulDescDestroy);
EXPECT_SAME_CALL(operation_set, cublasLtMatmulDescSetAttribute);
EXPECT_SAME_CALL(preference_create, cublasLtMatmulPreferenceCreate);
EXPECT_SAME_CALL(preference_destroy, cublasLtMatmulPreferenceDestroy);
EXPECT_SAME_CALL(preference_set, cublasLtMatmulPreferenceSetAttribute);
EXPECT_SAME_CALL(find_algorithms, cublasLtMatmulAlgoGetHeuristic);
EXPECT_SAME_CALL(check_algorithm, cublasLtMatmulAlgoCheck);
EXPECT_SAME_CALL(multiply, cublasLtMatmul);

// Compiling is the test.
TEST(CublasLtValues, AreThoseOfTheHeader) {
  SUCCEED();
}

}  // namespace
}  // namespace sluice::device::cublaslt

#else

TEST(CublasLtValues, AreThoseOfTheHeader) {
  GTEST_SKIP() << "no cublasLt.h here: install the CUDA toolkit's cuBLAS headers to compare";
}

#endif
