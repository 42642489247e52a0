#include <gnu/libc-version.h>
#include <sys/utsname.h>

#include <string>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file.h"
#include "cli/command.h"
#include "cli/gpus.h"
#include "cli/progress.h"
#include "cli/usage.h"
#include "cli/version.h"
#include "device/device.h"
#include "hardware/cpu_features.h"
#include "hardware/memory.h"
#include "hardware/topology.h"
#include "kernels/dispatch.h"
#include "models/registry.h"
#include "options/sources.h"

namespace sluice::cli {
namespace {

// The headings are the same as in `vllm collect-env`, because forms for bug reports ask for its
// output.
void Heading(std::string_view title) {
  fmt::print("\n==============================\n{:^30}\n==============================\n", title);
}

void Line(std::string_view name, const std::string& value) {
  fmt::print("{:<28} : {}\n", name, value);
}

std::string SystemName() {
  const auto text = ReadFile("/etc/os-release", 1 << 16);
  if (!text) return "unknown";
  constexpr std::string_view kKey = "PRETTY_NAME=\"";
  const size_t start = text->find(kKey);
  if (start == std::string::npos) return "unknown";
  const size_t value = start + kKey.size();
  return text->substr(value, text->find('"', value) - value);
}

bool IsSecret(std::string_view name) {
  for (std::string_view word : {"TOKEN", "KEY", "SECRET", "PASSWORD"}) {
    if (name.find(word) != std::string_view::npos) return true;
  }
  return false;
}

bool IsRelevant(std::string_view name) {
  for (std::string_view start :
       {"SLUICE_", "VLLM_", "HF_", "HUGGING", "XDG_CACHE_HOME", "CUDA_", "NVIDIA_", "HIP_", "ROCR_",
        "NCCL_", "OMP_", "TRTLLM_", "TLLM_", "SAFETENSORS_", "LD_LIBRARY_PATH", "LD_PRELOAD"}) {
    if (name.starts_with(start)) return true;
  }
  return false;
}

void PrintSystem() {
  utsname kernel{};
  uname(&kernel);
  Heading("System Info");
  Line("OS", fmt::format("{} ({})", SystemName(), kernel.machine));
  Line("Compiler", __VERSION__);
  Line("Libc version", fmt::format("glibc-{}", gnu_get_libc_version()));
  Line("Kernel", kernel.release);
  Heading("PyTorch Info");
  Line("PyTorch version", "none: this program has no Python");
  Heading("CUDA / GPU Info");
  Line("Is CUDA available", ListCudaDevices() ? "True" : "False");
  const auto devices = ListGpus();
  if (!devices) return Line("GPU models and configuration", devices.error().message);
  for (const DeviceInfo& device : *devices) {
    Line("GPU models and configuration",
         fmt::format("GPU {}: {}, {}", device.ordinal, device.name, GenerationText(device)));
  }
}

void PrintMachine() {
  const CpuFeatures& cpu = DetectCpuFeatures();
  const Topology topology = DetectTopology();
  const MemoryLimits memory = ReadMemoryLimits();
  Heading("CPU Info");
  Line("Model name", cpu.model);
  Line("CPU(s)", fmt::format("{}", topology.logical_cpus));
  Line("Usable cores", fmt::format("{}", topology.core_cpus.size()));
  if (topology.cpu_quota > 0) Line("Control group", fmt::format("{:.1f} CPUs", topology.cpu_quota));
  Line("NUMA node(s)", fmt::format("{}", topology.numa_nodes));
  Line("L1d cache", FormatBytes(topology.l1_data_bytes));
  Line("L2 cache", FormatBytes(topology.l2_bytes));
  Line("L3 cache", FormatBytes(topology.l3_bytes));
  Line("Memory", fmt::format("{} free of {}{}", FormatBytes(memory.available_bytes),
                             FormatBytes(memory.total_bytes), LimitNote(memory)));
}

void PrintBuild(options::Dialect dialect) {
  std::vector<std::string> isas;
  for (kernels::Isa isa : kernels::AvailableIsas()) isas.emplace_back(kernels::IsaName(isa));
  Heading("vLLM Info");
  Line("vLLM Version", dialect == options::Dialect::kVllm
                           ? VersionIn(dialect)
                           : fmt::format("none: this is sluice {}", Version()));
  Line("Build", fmt::format("sluice {}, commit {}, {}", Version(), Commit(), BuildType()));
  Line("Kernels", fmt::format("{}", fmt::join(isas, " ")));
  Line("Models", fmt::format("{}", fmt::join(SupportedArchitectures(), " ")));
}

}  // namespace

Result<int> RunCollectEnv(const options::Settings& settings) {
  fmt::print("Collecting environment information...");
  PrintSystem();
  PrintMachine();
  PrintBuild(settings.dialect());
  Heading("Environment Variables");
  for (const auto& [name, value] : options::ProcessEnvironment()) {
    if (IsRelevant(name)) fmt::print("{}={}\n", name, IsSecret(name) ? "***" : value);
  }
  return 0;
}

}  // namespace sluice::cli
