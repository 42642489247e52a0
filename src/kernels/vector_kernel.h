// Functions compiled once for each vector instruction set, from one source under cpu/ops/, and the
// choice between the versions at run time.
//
// The source of an operator contains its scalar version and declares its vector versions:
//
//   namespace reference {
//   void SiluMulRow(const float* gate, ...) { ... }
//   }
//   SLUICE_VECTOR_KERNEL(SiluMulRow);  // kSiluMulRow(gate, ...) runs the version in use.
//
// cpu/ops/silu_mul.cc defines SLUICE_ISA::SiluMulRow with the same parameters; the linker reports a
// function that is missing or whose parameters differ.
//
// SLUICE_LANE_SUM_KERNEL declares an operator whose vector versions add numbers of different lanes,
// so its results depend on the number of lanes; the portable kernels (portable/portable.h) use its
// scalar version. All other operators are bit-identical for any number of lanes, because an element
// of the result is computed by the same operations in the same order.
#pragma once

namespace sluice::kernels {

inline constexpr int kPortableVersion = 3;

// Index of the vector version in use (dispatch.cc). 0: scalar. On x86-64 1: AVX2, 2: AVX-512. On
// aarch64 1: NEON. 3: portable.
int VectorVersion();

template <typename Function>
class VectorKernel;

template <typename Result, typename... Args>
class VectorKernel<Result(Args...)> {
 public:
  template <typename... Versions>
  explicit constexpr VectorKernel(Versions... versions) : versions_{versions...} {}

  Result operator()(Args... args) const { return versions_[VectorVersion()](args...); }

 private:
  Result (*versions_[kPortableVersion + 1])(Args...);
};

#if defined(__x86_64__)
#define SLUICE_VECTOR_KERNEL_OF(name, portable)                                          \
  namespace avx2 {                                                                       \
  decltype(reference::name) name;                                                        \
  }                                                                                      \
  namespace avx512 {                                                                     \
  decltype(reference::name) name;                                                        \
  }                                                                                      \
  constexpr VectorKernel<decltype(reference::name)> k##name(reference::name, avx2::name, \
                                                            avx512::name, portable::name)
#define SLUICE_VECTOR_KERNEL(name) SLUICE_VECTOR_KERNEL_OF(name, avx2)
#elif defined(__aarch64__)
#define SLUICE_VECTOR_KERNEL_OF(name, portable)                                          \
  namespace neon {                                                                       \
  decltype(reference::name) name;                                                        \
  }                                                                                      \
  constexpr VectorKernel<decltype(reference::name)> k##name(reference::name, neon::name, \
                                                            neon::name, portable::name)
#define SLUICE_VECTOR_KERNEL(name) SLUICE_VECTOR_KERNEL_OF(name, neon)
#else
#define SLUICE_VECTOR_KERNEL_OF(name, portable)                                               \
  constexpr VectorKernel<decltype(reference::name)> k##name(reference::name, reference::name, \
                                                            reference::name, reference::name)
#define SLUICE_VECTOR_KERNEL(name) SLUICE_VECTOR_KERNEL_OF(name, reference)
#endif
#define SLUICE_LANE_SUM_KERNEL(name) SLUICE_VECTOR_KERNEL_OF(name, reference)

}  // namespace sluice::kernels
