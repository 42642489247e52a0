// Formats the memory plan of an engine as lines of text.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/engine.h"
#include "engine/engine_plan.h"
#include "engine/plan_text.h"
#include "hardware/memory.h"

namespace sluice {

std::vector<std::string> MemoryTable(const EnginePlan& plan) {
  const int block_size = plan.config.block_size;
  const auto line = [](const char* what, int64_t bytes, const std::string& detail) {
    return fmt::format("  {:<10} {:>12}  {}", what, MemoryText(bytes), detail);
  };
  const int64_t tokens = plan.num_blocks * block_size;
  const std::string of_each =
      plan.num_engines == 1 ? "" : fmt::format("in each of {} engines: ", plan.num_engines);
  std::vector<std::string> lines;
  lines.push_back("memory plan");
  lines.push_back(
      line("weights", plan.weight_bytes, fmt::format("computed in {}", DtypeName(plan.dtype))));
  lines.push_back(
      line("workspace", plan.workspace_bytes,
           fmt::format("{}steps of {} tokens and {} sequences, logits, sampling", of_each,
                       plan.scheduler.max_num_batched_tokens, plan.scheduler.max_num_seqs)));
  if (plan.tower_bytes > 0) {
    lines.push_back(line("tower", plan.tower_bytes,
                         plan.tower_on_device
                             ? "in host memory, to embed patches"
                             : fmt::format("in host memory, with {} rows of images, as {}",
                                           plan.image_rows, plan.tower_on_cpu)));
  }
  if (plan.lora.num_slots > 0) {
    lines.push_back(
        line("adapters", plan.adapter_bytes,
             fmt::format("{} in memory at a time, of rank {} at most, in {}{}{}",
                         plan.lora.num_slots, plan.lora.max_rank, DtypeName(plan.lora.type),
                         plan.lora.replaced_modules.empty() ? "" : ", each with its own ",
                         fmt::join(plan.lora.replaced_modules, ", "))));
  }
  if (!plan.recorded.sequences.empty()) {
    lines.push_back(line("graphs", plan.graph_bytes,
                         fmt::format("about, of steps of {} sizes, which the driver allocates",
                                     plan.recorded.sequences.size())));
  }
  const std::string_view kv_type = DtypeName(plan.kv_type);
  const std::string what =
      plan.kv_groups.num_groups() == 1
          ? fmt::format("{} blocks of {} tokens in {}: {} tokens, ", plan.num_blocks, block_size,
                        kv_type, tokens)
          : fmt::format("{} blocks of {} tokens and {} of {} layers in {}: ", plan.num_blocks,
                        block_size, plan.kv_groups.layers_per_group, plan.kv_groups.num_layers(),
                        kv_type);
  const double sequences =
      static_cast<double>(plan.kv_tokens()) / static_cast<double>(plan.max_model_len);
  lines.push_back(
      line("KV cache", plan.kv_bytes,
           of_each + what + fmt::format("{:.1f} sequences of {}", sequences, plan.max_model_len)));
  if (plan.tier_bytes > 0) {
    const OffloadConfig& offload = plan.config.offload;
    std::string tiers = fmt::format("{} of blocks{} beyond it", MemoryText(offload.ram_bytes),
                                    plan.num_state_slots > 0 ? " and snapshots" : "");
    if (offload.has_disk()) {
      tiers += fmt::format(", and blocks on their way to and from the disk: up to {} in {}",
                           MemoryText(offload.disk_bytes), offload.folder.string());
    }
    lines.push_back(line("KV tiers", plan.tier_bytes, tiers));
  }
  if (plan.num_state_slots > 0) {
    const int64_t running = plan.scheduler.max_num_seqs;
    lines.push_back(
        line("states", plan.state_bytes,
             of_each + fmt::format("{} of each sequence, of {} that run and {} snapshots",
                                   MemoryText(plan.state_bytes_per_slot), running,
                                   plan.num_state_slots - running)));
  }
  if (plan.draft) {
    const DraftPlan& draft = *plan.draft;
    lines.push_back(
        line("draft", draft.total_bytes(),
             fmt::format("{}{} of weights, {} of workspace, {} of KV cache: {} tokens",
                         of_each.empty() ? "" : "of all engines: ", MemoryText(draft.weight_bytes),
                         MemoryText(draft.workspace_bytes), MemoryText(draft.kv_bytes),
                         draft.num_blocks * block_size)));
  }
  lines.push_back(line("requests", plan.request_bytes,
                       plan.on_device() ? "bodies, prompts and answers, in the machine's memory"
                                        : "bodies, prompts and answers"));
  lines.push_back(line("total", plan.taken_bytes(), ""));
  lines.push_back(
      line("free", plan.memory.available_bytes,
           plan.on_device()
               ? fmt::format("of {} on {}", MemoryText(plan.memory.total_bytes), plan.device_name)
               : fmt::format("of {} that this process may use{}",
                             MemoryText(plan.memory.total_bytes), LimitNote(plan.memory))));
  for (const std::string& note : plan.notes) lines.push_back(note);
  return lines;
}

}  // namespace sluice
