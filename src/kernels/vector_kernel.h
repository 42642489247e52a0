// Functions compiled once for each vector instruction set, from one source under cpu/ops/, and the
// choice between the versions at run time.
//
// An operator has its scalar version in its own source and declares the vector versions there:
//
//   namespace reference {
//   void SiluMulRow(const float* gate, ...) { ... }
//   }
//   SLUICE_VECTOR_KERNEL(SiluMulRow);  // kSiluMulRow(gate, ...) runs the version in use.
//
// cpu/ops/silu_mul.cc defines SLUICE_ISA::SiluMulRow with the same parameters; the linker reports
// one that is missing or differs.
#pragma once

namespace sluice::kernels {

// Index of the vector version in use (dispatch.cc): 0 scalar; on x86-64 1 AVX2, 2 AVX-512; on
// aarch64 1 NEON.
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
  Result (*versions_[3])(Args...);
};

#if defined(__x86_64__)
#define SLUICE_VECTOR_KERNEL(name)                                                       \
  namespace avx2 {                                                                       \
  decltype(reference::name) name;                                                        \
  }                                                                                      \
  namespace avx512 {                                                                     \
  decltype(reference::name) name;                                                        \
  }                                                                                      \
  constexpr VectorKernel<decltype(reference::name)> k##name(reference::name, avx2::name, \
                                                            avx512::name)
#elif defined(__aarch64__)
#define SLUICE_VECTOR_KERNEL(name) \
  namespace neon {                 \
  decltype(reference::name) name;  \
  }                                \
  constexpr VectorKernel<decltype(reference::name)> k##name(reference::name, neon::name)
#else
#define SLUICE_VECTOR_KERNEL(name) \
  constexpr VectorKernel<decltype(reference::name)> k##name(reference::name)
#endif

}  // namespace sluice::kernels
