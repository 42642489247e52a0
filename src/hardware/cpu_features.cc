#include "hardware/cpu_features.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <algorithm>
#include <iterator>

#include <asm/hwcap.h>
#include <fmt/format.h>
#include <sys/auxv.h>
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
                    &r.edx);  // zeros if the CPU does not have the leaf
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

// Linux grants the large AMX state on request, once for the process and all threads that it starts.
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
  features.avx_vnni = features.avx2 && Bit(leaf7_1.eax, 4);
  features.avx512 = features.avx2 && zmm_saved && Bit(leaf7.ebx, 16) && Bit(leaf7.ebx, 17) &&
                    Bit(leaf7.ebx, 30) && Bit(leaf7.ebx, 31);
  features.avx512_vbmi = features.avx512 && Bit(leaf7.ecx, 1);
  features.avx512_vnni = features.avx512 && Bit(leaf7.ecx, 11);
  features.avx512_bf16 = features.avx512 && Bit(leaf7_1.eax, 5);
  if (features.avx512 && tiles_saved && Bit(leaf7.edx, 24) && RequestAmx()) {
    features.amx_bf16 = Bit(leaf7.edx, 22);
    features.amx_int8 = Bit(leaf7.edx, 25);
  }
  return features;
}

#elif defined(__aarch64__)

// The core's manufacturer and part number, from MIDR_EL1. Linux emulates the read if HWCAP_CPUID is
// set. On a machine with several kinds of cores, it describes the current core.
struct Core {
  uint32_t implementer;
  uint32_t part;
  const char* name;
};
constexpr Core kCores[] = {
    {0x41, 0xD08, "Arm Cortex-A72"},  {0x41, 0xD0B, "Arm Cortex-A76"},
    {0x41, 0xD0C, "Arm Neoverse N1"}, {0x41, 0xD40, "Arm Neoverse V1"},
    {0x41, 0xD49, "Arm Neoverse N2"}, {0x41, 0xD4F, "Arm Neoverse V2"},
    {0x41, 0xD84, "Arm Neoverse V3"}, {0x41, 0xD85, "Arm Cortex-X925"},
    {0x41, 0xD87, "Arm Cortex-A725"},
};

std::string Model(bool can_read) {
  if (!can_read) return "";
  uint64_t id = 0;
  asm("mrs %0, MIDR_EL1" : "=r"(id));
  const auto implementer = static_cast<uint32_t>(id >> 24 & 0xFF);
  const auto part = static_cast<uint32_t>(id >> 4 & 0xFFF);
  const auto* core = std::find_if(std::begin(kCores), std::end(kCores), [&](const Core& known) {
    return known.implementer == implementer && known.part == part;
  });
  if (core != std::end(kCores)) return core->name;
  return fmt::format("aarch64 implementer {:#x} part {:#x}", implementer, part);
}

CpuFeatures Detect() {
  const unsigned long first = ::getauxval(AT_HWCAP);
  const unsigned long second = ::getauxval(AT_HWCAP2);
  CpuFeatures features;
  features.model = Model((first & HWCAP_CPUID) != 0);
  features.neon = (first & HWCAP_ASIMD) != 0;
  features.neon_dotprod = features.neon && (first & HWCAP_ASIMDDP) != 0;
  features.neon_bf16 = features.neon && (second & HWCAP2_BF16) != 0;
  features.neon_i8mm = features.neon && (second & HWCAP2_I8MM) != 0;
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
