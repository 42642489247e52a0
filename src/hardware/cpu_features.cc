#include "hardware/cpu_features.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace sluice {
namespace {

#if defined(__x86_64__)

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers CpuId(uint32_t leaf, uint32_t subleaf = 0) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx,
                    &r.edx);  // Leaves zeros for a leaf the CPU lacks.
  return r;
}

bool Bit(uint32_t value, int bit) {
  return (value >> bit & 1) != 0;
}

// The register states that the operating system saves (XCR0).
uint64_t SavedStates() {
  uint32_t low = 0;
  uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

// Linux grants the large AMX state on request, once for the process and all threads it starts.
bool RequestAmx() {
  constexpr int kArchRequestStatePermission = 0x1023;
  constexpr int kTileData = 18;
  return ::syscall(SYS_arch_prctl, kArchRequestStatePermission, kTileData) == 0;
}

std::string Trimmed(const char* text, size_t size) {
  std::string result(text, ::strnlen(text, size));
  const size_t first = result.find_first_not_of(' ');
  const size_t last = result.find_last_not_of(' ');
  return first == std::string::npos ? "" : result.substr(first, last - first + 1);
}

std::string Model() {
  if (CpuId(0x80000000).eax < 0x80000004) return "";
  char text[48];
  for (uint32_t i = 0; i < 3; ++i) {
    const Registers r = CpuId(0x80000002 + i);
    std::memcpy(text + 16 * i, &r, 16);
  }
  return Trimmed(text, sizeof(text));
}

CpuFeatures Detect() {
  CpuFeatures features;
  const Registers leaf0 = CpuId(0);
  const uint32_t vendor[3] = {leaf0.ebx, leaf0.edx, leaf0.ecx};
  features.vendor = Trimmed(reinterpret_cast<const char*>(vendor), sizeof(vendor));
  features.model = Model();

  const Registers leaf1 = CpuId(1);
  const bool has_xgetbv = Bit(leaf1.ecx, 27);
  if (!has_xgetbv) return features;
  const uint64_t saved = SavedStates();
  const bool ymm_saved = (saved & 0x6) == 0x6;
  const bool zmm_saved = ymm_saved && (saved & 0xE0) == 0xE0;
  const bool tiles_saved = (saved & 0x60000) == 0x60000;

  const Registers leaf7 = CpuId(7);
  const Registers leaf7_1 = leaf7.eax >= 1 ? CpuId(7, 1) : Registers{};
  features.avx2 = ymm_saved && Bit(leaf1.ecx, 12) && Bit(leaf1.ecx, 29) && Bit(leaf7.ebx, 5);
  features.avx512 = features.avx2 && zmm_saved && Bit(leaf7.ebx, 16) && Bit(leaf7.ebx, 17) &&
                    Bit(leaf7.ebx, 30) && Bit(leaf7.ebx, 31);
  features.avx512_vnni = features.avx512 && Bit(leaf7.ecx, 11);
  features.avx512_bf16 = features.avx512 && Bit(leaf7_1.eax, 5);
  if (features.avx512 && tiles_saved && Bit(leaf7.edx, 24) && RequestAmx()) {
    features.amx_bf16 = Bit(leaf7.edx, 22);
    features.amx_int8 = Bit(leaf7.edx, 25);
  }
  return features;
}

#else

CpuFeatures Detect() {
  return {};
}

#endif

}  // namespace

const CpuFeatures& DetectCpuFeatures() {
  static const CpuFeatures features = Detect();
  return features;
}

}  // namespace sluice
