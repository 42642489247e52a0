#include "cli/step_cost.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "checkpoint/mistral_format.h"

namespace sluice::cli {
namespace {

std::string Size(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.2f} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.2f} MB", bytes / 1e6);
  return fmt::format("{:.1f} KB", bytes / 1e3);
}

std::string Milliseconds(double seconds) {
  return fmt::format("{:.3f} ms", seconds * 1e3);
}

}  // namespace

Result<std::optional<StepCost>> StepCostOf(const options::Settings& settings,
                                           const InspectReport& report) {
  const std::string name = settings.TextOr("device-kind");
  if (name.empty()) return std::nullopt;
  StepCost cost;
  cost.accelerator = FindAccelerator(name);
  if (cost.accelerator == nullptr) {
    std::vector<std::string_view> known;
    for (const Accelerator& one : Accelerators()) known.push_back(one.name);
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--device-kind {}: expected one of {}", name, fmt::join(known, ", ")),
                "device-kind");
  }
  ASSIGN_OR_RETURN(const json::Value config, ReadModelConfig(report.folder));
  ASSIGN_OR_RETURN(cost.model.shape, ShapeOfConfig(config, report.folder.filename().string()));
  cost.model.format = FormatOfName(report.scheme);
  cost.model.kv_element_bytes = report.fp8_kv_cache ? 1 : 2;
  cost.group = {.tensor = *settings.Integer("tensor-parallel-size"),
                .stages = *settings.Integer("pipeline-parallel-size"),
                .engines = *settings.Integer("data-parallel-size")};
  cost.batch = static_cast<double>(*settings.Integer("step-sequences"));
  cost.context = static_cast<double>(*settings.Integer("step-context"));
  const auto bandwidth = settings.Number("link-bandwidth");
  cost.link_bytes_per_second =
      bandwidth ? *bandwidth * 1e9 : cost.accelerator->link_bytes_per_second;
  cost.link_latency = *settings.Number("link-latency") / 1e6;
  cost.step =
      PlanParallelStep(cost.model, *cost.accelerator, cost.group, cost.link_bytes_per_second,
                       cost.link_latency, cost.batch, cost.context);
  cost.traffic = TrafficOf(cost.model.shape, cost.group);
  return cost;
}

std::string FormatText(const StepCost& cost) {
  const ParallelStep& step = cost.step;
  const double kv_bytes = step.kv_token_bytes * cost.context * step.num_sequences;
  std::string text = fmt::format(
      "\nA decoding step of {} sequences of {} tokens on {} {} (tp {}, pp {}, dp {}), at least\n",
      cost.batch, cost.context, cost.group.num_devices(), cost.accelerator->name, cost.group.tensor,
      cost.group.stages, cost.group.engines);
  const auto line = [&](std::string_view part, double seconds, const std::string& detail) {
    text += fmt::format("  {:<14}{:>12}  {}\n", part, Milliseconds(seconds), detail);
  };
  line("weights", step.weight_seconds,
       fmt::format("{}, {} on the fullest device", WeightFormatName(cost.model.format),
                   Size(step.weight_bytes)));
  line("KV cache", step.kv_seconds,
       step.most_sequences == 0
           ? "does not fit: the weights leave no room for a sequence"
           : fmt::format("{} on the fullest device, where {} sequences of an engine fit",
                         Size(kv_bytes), step.most_sequences));
  line("arithmetic", step.flop_seconds, "beside both");
  line("link bytes", step.link_bytes_seconds,
       fmt::format("{} a token and device, at {} a second", Size(cost.traffic.received_bytes),
                   Size(cost.link_bytes_per_second)));
  line("link latency", step.link_wait_seconds,
       fmt::format("{} exchanges of {:.1f} us", cost.traffic.num_exchanges,
                   cost.link_latency * 1e6));
  line("step", step.seconds(),
       fmt::format("bound by {}; {:.0f} tokens a second", step.bound(),
                   cost.batch / step.seconds()));
  return text;
}

json::Value ToJson(const StepCost& cost) {
  const ParallelStep& step = cost.step;
  json::Value value{json::Value::Object{}};
  value.Set("device_kind", std::string(cost.accelerator->name));
  value.Set("num_devices", cost.group.num_devices());
  value.Set("sequences", cost.batch);
  value.Set("context", cost.context);
  value.Set("weight_format", std::string(WeightFormatName(cost.model.format)));
  value.Set("weight_bytes_per_device", step.weight_bytes);
  value.Set("kv_bytes_per_token_and_device", step.kv_token_bytes);
  value.Set("most_sequences", step.most_sequences);
  value.Set("weight_seconds", step.weight_seconds);
  value.Set("kv_seconds", step.kv_seconds);
  value.Set("arithmetic_seconds", step.flop_seconds);
  value.Set("link_bytes_per_token", cost.traffic.row_bytes);
  value.Set("link_bytes_per_token_and_device", cost.traffic.received_bytes);
  value.Set("link_exchanges", cost.traffic.num_exchanges);
  value.Set("link_bytes_seconds", step.link_bytes_seconds);
  value.Set("link_latency_seconds", step.link_wait_seconds);
  value.Set("step_seconds", step.seconds());
  value.Set("bound", std::string(step.bound()));
  return value;
}

}  // namespace sluice::cli
