#include "kernels/dispatch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <string>

#include <fmt/format.h>

#include "base/check.h"
#include "hardware/cpu_features.h"
#include "kernels/cpu/tables.h"
#include "kernels/kernel_table.h"
#include "kernels/portable/portable.h"
#include "kernels/vector_kernel.h"

namespace sluice::kernels {
namespace {

struct Variant {
  Isa isa;
  const KernelTable* table;
  int vector_version;  // see VectorVersion()
  bool (*runs_here)(const CpuFeatures& features);
};

bool HasBf16Instructions(const CpuFeatures& cpu) {
  return cpu.avx512_bf16 && cpu.avx512_vnni && cpu.avx512_vbmi;
}

// Whether a BF16 dot product takes as long as four F32 multiply-adds (linear_multiply_adds.cc).
bool HasSlowBf16Dots(const CpuFeatures& cpu) {
  return cpu.vendor == "GenuineIntel";
}

// Whether products of subnormal F32 numbers take as long as those of others.
bool HasFastSubnormals(const CpuFeatures& cpu) {
  return cpu.vendor == "AuthenticAMD";
}

// In ascending order of preference.
constexpr std::array kVariants = {
    Variant{Isa::kReference, &kReferenceKernels, 0, [](const CpuFeatures&) { return true; }},
#if defined(__x86_64__)
    Variant{Isa::kPortable, &kPortableKernels, kPortableVersion,
            [](const CpuFeatures& cpu) { return cpu.avx2; }},
    Variant{Isa::kAvx2, &kAvx2Kernels, 1,
            [](const CpuFeatures& cpu) { return cpu.avx2 && !HasFastSubnormals(cpu); }},
    Variant{Isa::kAvx2, &kAvx2SubnormalsKernels, 1,
            [](const CpuFeatures& cpu) { return cpu.avx2 && HasFastSubnormals(cpu); }},
    Variant{Isa::kAvx2Vnni, &kAvx2VnniKernels, 1,
            [](const CpuFeatures& cpu) { return cpu.avx2 && cpu.avx_vnni; }},
    Variant{Isa::kAvx2Vnni, &kAvx2VnniEvexKernels, 1,
            [](const CpuFeatures& cpu) { return cpu.avx512_vnni && !cpu.avx_vnni; }},
    Variant{Isa::kAvx512, &kAvx512Kernels, 2, [](const CpuFeatures& cpu) { return cpu.avx512; }},
    Variant{Isa::kAvx512Vnni, &kAvx512VnniKernels, 2,
            [](const CpuFeatures& cpu) { return cpu.avx512_vnni; }},
    Variant{
        Isa::kAvx512Bf16, &kAvx512Bf16Kernels, 2,
        [](const CpuFeatures& cpu) { return HasBf16Instructions(cpu) && !HasSlowBf16Dots(cpu); }},
    Variant{
        Isa::kAvx512Bf16, &kAvx512SlowBf16Kernels, 2,
        [](const CpuFeatures& cpu) { return HasBf16Instructions(cpu) && HasSlowBf16Dots(cpu); }},
    Variant{Isa::kAmx, &kAmxKernels, 2,
            [](const CpuFeatures& cpu) { return cpu.amx_bf16 && cpu.amx_int8 && cpu.avx512_bf16; }},
#elif defined(__aarch64__)
    Variant{Isa::kPortable, &kPortableKernels, kPortableVersion,
            [](const CpuFeatures& cpu) { return cpu.neon; }},
    Variant{Isa::kNeon, &kNeonKernels, 1, [](const CpuFeatures& cpu) { return cpu.neon; }},
    Variant{Isa::kNeonDotprod, &kNeonDotprodKernels, 1,
            [](const CpuFeatures& cpu) { return cpu.neon_dotprod; }},
    Variant{
        Isa::kNeonBf16, &kNeonBf16Kernels, 1,
        [](const CpuFeatures& cpu) { return cpu.neon_bf16 && cpu.neon_i8mm && cpu.neon_dotprod; }},
#endif
};

bool RunsHere(const Variant& variant) {
  return variant.runs_here(DetectCpuFeatures());
}

const Variant& Best() {
  return *std::find_if(kVariants.rbegin(), kVariants.rend(), RunsHere);
}

// Null until first use.
std::atomic<const Variant*> current{nullptr};

const Variant& Current() {
  const Variant* variant = current.load(std::memory_order_acquire);
  if (variant == nullptr) {
    variant = &Best();
    current.store(variant, std::memory_order_release);
  }
  return *variant;
}

}  // namespace

const KernelTable& Kernels() {
  return *Current().table;
}

int VectorVersion() {
  return Current().vector_version;
}

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kReference: return "reference";
    case Isa::kPortable: return "portable";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx2Vnni: return "avx2_vnni";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Vnni: return "avx512_vnni";
    case Isa::kAvx512Bf16: return "avx512_bf16";
    case Isa::kAmx: return "amx";
    case Isa::kNeon: return "neon";
    case Isa::kNeonDotprod: return "neon_dotprod";
    case Isa::kNeonBf16: return "neon_bf16";
  }
  CHECK(false, "not an ISA: {}", static_cast<int>(isa));
}

std::vector<Isa> AvailableIsas() {
  std::vector<Isa> isas;
  for (const Variant& variant : kVariants) {
    if (RunsHere(variant)) isas.push_back(variant.isa);
  }
  return isas;
}

Isa CurrentIsa() {
  return Current().isa;
}

Status SelectIsa(std::string_view name) {
  if (name == "auto") {
    SelectIsa(Best().isa);
    return {};
  }
  std::string available;
  for (Isa isa : AvailableIsas()) {
    if (IsaName(isa) == name) {
      SelectIsa(isa);
      return {};
    }
    available += fmt::format("{}{}", available.empty() ? "" : ", ", IsaName(isa));
  }
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx2Vnni, Isa::kAvx512, Isa::kAvx512Vnni,
                  Isa::kAvx512Bf16, Isa::kAmx, Isa::kNeon, Isa::kNeonDotprod, Isa::kNeonBf16}) {
    if (IsaName(isa) == name) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("this machine cannot run the {} kernels; it can run: auto, {}", name,
                              available),
                  "cpu-isa");
    }
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("unknown instruction set \"{}\"; this machine can run: auto, {}", name,
                          available),
              "cpu-isa");
}

void SelectIsa(Isa isa) {
  const auto* variant = std::find_if(kVariants.begin(), kVariants.end(),
                                     [&](const Variant& v) { return v.isa == isa && RunsHere(v); });
  CHECK(variant != kVariants.end(), "kernels of {} are not available", IsaName(isa));
  current.store(variant, std::memory_order_release);
}

}  // namespace sluice::kernels
