// Runs the checks of `sluice selftest` on the PTX that nvcc generates from the kernels. The
// interpreter in this folder and the emulator both run every launch on the emulated device. The
// results must pass, and must be bit-identical except for functions that PTX approximates or
// computes in another way than the host's library.
//
// Usage: ptx_test FOLDER [--all] [--counts=FILE] [PART...]; --all: with all shapes; --counts:
// writes a page of the kernels' accesses to memory; FOLDER: *.ptx, compiled with -fmad=false, like
// the emulator's source. Prints a line per check, and the counts in the last line; exits with 1 if
// a check failed.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <elf.h>

#include "device/plain_tensor_map.h"
#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/emulator.h"
#include "kernels/cuda/linear_plan.h"
#include "kernels/cuda/nvf4_scales.h"
#include "ptx_machine.h"
#include "selftest/check_parts.h"

namespace sluice::ptx {
namespace {

// Returns the names of this program's functions, by their address in its file.
std::map<uint64_t, std::string> OwnFunctions() {
  FILE* file = fopen("/proc/self/exe", "rb");
  fseek(file, 0, SEEK_END);
  std::vector<char> bytes(static_cast<size_t>(ftell(file)));
  fseek(file, 0, SEEK_SET);
  if (fread(bytes.data(), 1, bytes.size(), file) != bytes.size()) exit(1);
  fclose(file);
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(bytes.data() + header->e_shoff);
  std::map<uint64_t, std::string> names;
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const char* strings = bytes.data() + sections[sections[i].sh_link].sh_offset;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(bytes.data() + sections[i].sh_offset);
    for (size_t s = 0; s < sections[i].sh_size / sizeof(Elf64_Sym); ++s) {
      if (ELF64_ST_TYPE(symbols[s].st_info) == STT_FUNC)
        names[symbols[s].st_value] = strings + symbols[s].st_name;
    }
  }
  return names;
}

void Replace(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// Finds the name that a kernel of the emulator has in the CUDA build.
class KernelNames {
 public:
  KernelNames() : functions_(OwnFunctions()) {
    Dl_info info;
    dladdr(reinterpret_cast<const void*>(&OwnFunctions), &info);
    base_ = reinterpret_cast<uint64_t>(info.dli_fbase);
  }
  std::string Of(const void* kernel) const {
    const auto found = functions_.find(reinterpret_cast<uint64_t>(kernel) - base_);
    if (found == functions_.end()) return "";
    std::string name = Demangled(found->second);
    Replace(name, "sluice::emulated::", "sluice::cuda::");
    for (const char* vector : {"uint2", "uint4", "float2", "float4"})  // CUDA's own types
      Replace(name, std::string("sluice::cuda::") + vector, vector);
    return name;
  }

 private:
  std::map<uint64_t, std::string> functions_;
  uint64_t base_ = 0;
};

// Returns whether the check's results may differ from the emulator's bits, within their bounds.
// exp, sin, cos and log1p are code of nvcc's library in PTX, and rsqrt is an approximation (all six
// functions are results of one kernel). PTX also specifies which NaN an operation returns.
bool MayDiffer(const checks::CheckRow& row) {
  static const std::set<std::string> kNames = {"expf",           "rsqrtf",     "sinf",
                                               "cosf",           "log1pf",     "division",
                                               "shared_gate",    "rope_table", "router",
                                               "silu_mul",       "activate",   "cap_logits",
                                               "clamped_swiglu", "convolve",   "update_state",
                                               "gate_states",    "gate_rows",  "tempered_products"};
  return kNames.contains(row.name) || (row.name + row.shape).find("NaN") != std::string::npos;
}

// Returns the memory that a launch may read before it waits for earlier kernels: the weights of a
// product.
Overlap OverlapOf(const emulator::KernelLaunch& launch) {
  const bool is_by_groups = std::string_view(launch.name) == "linear_groups";
  if (std::string_view(launch.name) != "linear" && !is_by_groups) return {};
  // The first member of the kernel's arguments, or behind two tensor maps.
  device::GroupedLinearArgs product;
  const size_t offset = is_by_groups ? 2 * sizeof(device::TensorMap) : 0;
  memcpy(static_cast<void*>(&product), static_cast<const unsigned char*>(launch.args) + offset,
         sizeof(product));
  const device::Weights& w = product.linear.w;
  const auto address = [](const void* data) { return reinterpret_cast<uint64_t>(data); };
  const auto code_bytes = static_cast<uint64_t>(w.n * w.k * device::LinearCodeBits(w.type) / 8);
  Overlap overlap;
  overlap.constants.emplace_back(address(w.codes), code_bytes);
  if (w.group_scales != nullptr) {
    // At most one scale of 4 bytes for 16 numbers, and the padding of NVFP4's tiles.
    const int64_t bytes = w.group_type == device::GroupScales::kE4M3
                              ? device::NvF4ScaleBytes(w.n, w.k / device::kNvF4Group)
                              : w.n * ((w.k + 15) / 16) * 4;
    overlap.constants.emplace_back(address(w.group_scales), static_cast<uint64_t>(bytes));
  }
  return overlap;
}

std::vector<checks::CheckRow> RunPart(const checks::DeviceUnderTest& device,
                                      const checks::CheckPart& part, checks::CheckExtent extent) {
  checks::CheckRun run(device, {}, extent);
  run.RunPart(part);
  return run.rows();
}

int Main(const std::vector<std::string>& words) {
  Program program;
  for (const auto& entry : std::filesystem::directory_iterator(words.at(0))) {
    if (entry.path().extension() == ".ptx") ReadFile(entry.path(), program);
  }
  constexpr std::string_view kCountsOption = "--counts=";
  std::string counts_file;
  std::set<std::string> wanted;
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i].starts_with(kCountsOption))
      counts_file = words[i].substr(kCountsOption.size());
    else
      wanted.insert(words[i]);
  }
  const auto extent =
      wanted.erase("--all") > 0 ? checks::CheckExtent::kQuick : checks::CheckExtent::kSome;
  const KernelNames names;
  Machine machine;
  machine.LimitE4m3Sums(128);  // then they are added in F32
  std::set<std::string> run_kernels;
  int64_t num_overlapping = 0;
  const auto run = [&](const emulator::KernelLaunch& launch) {
    const std::string name = names.Of(launch.kernel);
    const auto kernel = program.kernels.find(name);
    if (kernel == program.kernels.end()) {
      fprintf(stderr, "no PTX of kernel %s (%s)\n", launch.name, name.c_str());
      exit(1);
    }
    run_kernels.insert(name);
    const emulator::Grid& grid = launch.grid;
    const Overlap overlap = launch.overlaps ? OverlapOf(launch) : Overlap();
    num_overlapping += launch.overlaps;
    machine.Run(kernel->second, {grid.x, grid.y, grid.z}, grid.threads, grid.shared_bytes,
                launch.args, launch.args_bytes, launch.overlaps ? &overlap : nullptr);
  };
  auto device = checks::DeviceUnderTest::Open(DeviceKind::kEmulated, 0);
  if (!device) return 1;
  int passed = 0, failed = 0, equal = 0;
  for (const checks::CheckPart& part : selftest::PartsOfKernels()) {
    if (!wanted.empty() && !wanted.contains(std::string(part.name))) continue;
    const std::vector<checks::CheckRow> expected = RunPart(*device, part, extent);
    emulator::SetRunner(run);
    const std::vector<checks::CheckRow> rows = RunPart(*device, part, extent);
    emulator::SetRunner({});
    for (size_t i = 0; i < rows.size(); ++i) {
      const checks::CheckRow& row = rows[i];
      if (row.skipped) continue;
      const bool is_equal = row.digest == expected[i].digest;
      const bool is_good = row.passed && (is_equal || MayDiffer(row));
      (is_good ? passed : failed) += 1;
      equal += is_equal;
      printf("%-14s %-26s %-46s %s%s %s\n", row.part.c_str(), row.name.c_str(), row.shape.c_str(),
             is_good ? "pass" : "FAIL", is_equal ? "" : ", other bits", row.message.c_str());
      fflush(stdout);
    }
  }
  printf("%zu of %zu kernels ran, %.1f million instructions; %d checks with the emulator's bits\n",
         run_kernels.size(), program.kernels.size(),
         static_cast<double>(machine.num_instructions()) * 1e-6, equal);
  printf("%lld launches began before earlier kernels ended\n",
         static_cast<long long>(num_overlapping));
  if (!counts_file.empty() && !(std::ofstream(counts_file) << CountsPage(machine.counts()))) {
    fprintf(stderr, "%s cannot be written\n", counts_file.c_str());
    return 1;
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace
}  // namespace sluice::ptx

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s FOLDER [--all] [--counts=FILE] [PART...]\n", argv[0]);
    return 2;
  }
  return sluice::ptx::Main({argv + 1, argv + argc});
}
