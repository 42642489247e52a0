#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "cli/command.h"
#include "cli/gpus.h"
#include "cli/limits.h"
#include "cli/progress.h"
#include "hardware/cpu_features.h"
#include "hardware/memory.h"
#include "hardware/topology.h"
#include "kernels/dispatch.h"

namespace sluice::cli {
namespace {

struct Findings {
  CpuFeatures cpu;
  Topology topology;
  MemoryLimits memory;
  std::vector<std::string> isas;
  std::string isa;
  int threads = 0;
  MachineLimits limits;
  GpuFindings gpus;
};

std::vector<std::string> Instructions(const CpuFeatures& cpu) {
  std::vector<std::string> names;
  const auto add = [&](bool has, const char* name) {
    if (has) names.emplace_back(name);
  };
  add(cpu.avx2, "avx2");
  add(cpu.avx_vnni, "avx_vnni");
  add(cpu.avx512, "avx512");
  add(cpu.avx512_vbmi, "avx512_vbmi");
  add(cpu.avx512_vnni, "avx512_vnni");
  add(cpu.avx512_bf16, "avx512_bf16");
  add(cpu.amx_bf16, "amx_bf16");
  add(cpu.amx_int8, "amx_int8");
  add(cpu.neon, "neon");
  add(cpu.neon_dotprod, "neon_dotprod");
  add(cpu.neon_bf16, "neon_bf16");
  add(cpu.neon_i8mm, "neon_i8mm");
  return names;
}

Result<Findings> Examine(const options::Settings& settings) {
  RETURN_IF_ERROR(kernels::SelectIsa(settings.TextOr("cpu-isa")));
  Findings findings;
  findings.cpu = DetectCpuFeatures();
  findings.topology = DetectTopology();
  findings.memory = ReadMemoryLimits();
  for (kernels::Isa isa : kernels::AvailableIsas())
    findings.isas.emplace_back(kernels::IsaName(isa));
  findings.isa = kernels::IsaName(kernels::CurrentIsa());
  findings.threads = static_cast<int>(*settings.Integer("threads"));
  if (findings.threads == 0) findings.threads = findings.topology.DefaultThreads();
  findings.limits = MeasureLimits(findings.threads);
  findings.gpus = ExamineGpus();
  return findings;
}

// Number of sequences above which reading the weights no longer limits a step. Assumes two
// operations and two bytes per BF16 weight.
double BalanceSequences(const MachineLimits& limits) {
  return limits.read_bytes_per_second > 0
             ? limits.bf16_flops_per_second() / limits.read_bytes_per_second
             : 0;
}

std::string Arithmetic(const MachineLimits& limits) {
  std::string text;
  const auto add = [&](std::string_view unit, double flops) {
    if (flops > 0)
      text += fmt::format("{}{} {:.0f} GFLOP/s", text.empty() ? "" : ", ", unit, flops / 1e9);
  };
  add("BF16 by AMX", limits.amx_bf16_flops_per_second);
  add("BF16 by AVX-512", limits.avx512_bf16_flops_per_second);
  add("BF16 by NEON", limits.neon_bf16_flops_per_second);
  add("FP32", limits.f32_flops_per_second);
  return text + " measured";
}

std::string Text(const Findings& f) {
  std::string text = fmt::format("cpu        {}\n", f.cpu.model);
  text += fmt::format("can        {}\n", fmt::join(Instructions(f.cpu), " "));
  text += fmt::format("kernels    {} (chosen: {}; --cpu-isa forces one)\n", fmt::join(f.isas, " "),
                      f.isa);
  text +=
      fmt::format("cores      {} usable, on {} logical CPUs and {} NUMA node{}{}\n",
                  f.topology.core_cpus.size(), f.topology.logical_cpus, f.topology.numa_nodes,
                  f.topology.numa_nodes == 1 ? "" : "s",
                  f.topology.cpu_quota > 0
                      ? fmt::format(", time for {:.1f} CPUs by control group", f.topology.cpu_quota)
                      : "");
  text += fmt::format("threads    {} (--threads sets them)\n", f.threads);
  text +=
      fmt::format("caches     L1 {}, L2 {} a core, L3 {}\n", FormatBytes(f.topology.l1_data_bytes),
                  FormatBytes(f.topology.l2_bytes), FormatBytes(f.topology.l3_bytes));
  text += fmt::format("memory     {} free of {}{}\n", FormatBytes(f.memory.available_bytes),
                      FormatBytes(f.memory.total_bytes), LimitNote(f.memory));
  text += fmt::format("read       {:.1f} GB/s measured\n", f.limits.read_bytes_per_second / 1e9);
  text += fmt::format("arithmetic {}\n", Arithmetic(f.limits));
  text +=
      "limits     decoding one sequence is bound by reading the weights: tokens/s = read / bytes "
      "of the weights\n";
  text += fmt::format(
      "           prefill, and steps of more than about {:.0f} sequences, are bound by BF16 "
      "arithmetic\n",
      BalanceSequences(f.limits));
  text += GpuLines(f.gpus);
  return text;
}

json::Value Json(const Findings& f) {
  const auto strings = [](const std::vector<std::string>& from) {
    json::Value::Array array;
    for (const std::string& text : from) array.emplace_back(text);
    return json::Value(std::move(array));
  };
  json::Value object{json::Value::Object{}};
  object.Set("cpu", json::Value(f.cpu.model));
  object.Set("instructions", strings(Instructions(f.cpu)));
  object.Set("kernels", strings(f.isas));
  object.Set("kernel", json::Value(f.isa));
  object.Set("cores", json::Value(static_cast<int64_t>(f.topology.core_cpus.size())));
  object.Set("logical_cpus", json::Value(f.topology.logical_cpus));
  object.Set("cpu_quota", json::Value(f.topology.cpu_quota));
  object.Set("numa_nodes", json::Value(f.topology.numa_nodes));
  object.Set("threads", json::Value(f.threads));
  object.Set("l1_data_bytes", json::Value(f.topology.l1_data_bytes));
  object.Set("l2_bytes", json::Value(f.topology.l2_bytes));
  object.Set("l3_bytes", json::Value(f.topology.l3_bytes));
  object.Set("memory_total_bytes", json::Value(f.memory.total_bytes));
  object.Set("memory_available_bytes", json::Value(f.memory.available_bytes));
  object.Set("read_bytes_per_second", json::Value(f.limits.read_bytes_per_second));
  object.Set("avx512_bf16_flops_per_second", json::Value(f.limits.avx512_bf16_flops_per_second));
  object.Set("amx_bf16_flops_per_second", json::Value(f.limits.amx_bf16_flops_per_second));
  object.Set("neon_bf16_flops_per_second", json::Value(f.limits.neon_bf16_flops_per_second));
  object.Set("f32_flops_per_second", json::Value(f.limits.f32_flops_per_second));
  AddGpuFields(f.gpus, object);
  return object;
}

}  // namespace

Result<int> RunDoctor(const options::Settings& settings) {
  ASSIGN_OR_RETURN(const Findings findings, Examine(settings));
  if (settings.Flag("json")) {
    fmt::print("{}\n", json::Write(Json(findings)));
  } else {
    fmt::print("{}", Text(findings));
  }
  return 0;
}

}  // namespace sluice::cli
