#include "recording/plan_facts.h"

#include <fmt/format.h>

#include "base/json_fields.h"

namespace sluice::recording {

std::string PlanFacts(const EnginePlan& plan) {
  const SchedulerLimits& limits = plan.scheduler;
  json::Value facts{json::Value::Object{}};
  facts.Set("max_model_len", plan.max_model_len);
  facts.Set("max_num_seqs", limits.max_num_seqs);
  facts.Set("max_num_batched_tokens", limits.max_num_batched_tokens);
  facts.Set("num_blocks", plan.num_blocks);
  facts.Set("block_size", limits.block_size);
  facts.Set("num_state_slots", plan.num_state_slots);
  facts.Set("enable_prefix_caching", plan.config.enable_prefix_caching);
  facts.Set("max_prompt_logit_rows", limits.max_prompt_logit_rows);
  facts.Set("max_proposed_tokens", limits.max_proposed_tokens);
  facts.Set("steps_in_flight", limits.steps_in_flight);
  facts.Set("num_stages", limits.num_stages);
  facts.Set("chunked_prefill", limits.chunked_prefill);
  facts.Set("long_prefill_token_threshold", limits.long_prefill_token_threshold);
  facts.Set("policy", static_cast<int>(limits.policy));
  facts.Set("ageing_level_us", limits.ageing.level_us);
  facts.Set("ageing_max_levels", limits.ageing.max_levels);
  facts.Set("max_image_rows", limits.max_image_rows);
  facts.Set("snapshot_interval", limits.snapshot_interval);
  json::Value::Array groups;
  for (const AttentionSpan& group : limits.groups) {
    json::Value::Array span;
    span.emplace_back(group.chunk);
    span.emplace_back(group.window);
    groups.emplace_back(std::move(span));
  }
  facts.Set("groups", std::move(groups));
  facts.Set("pools", plan.pooling.has_value());
  facts.Set("offloads", plan.config.offload.is_given());
  return json::Write(facts);
}

Result<PlanSizes> ReadPlanSizes(std::string_view facts) {
  const auto value = json::Parse(facts, {.max_bytes = size_t{1} << 20, .max_depth = 8});
  if (!value || !value->is_object())
    return Fail(ErrorCode::kInvalidData, "the start of an engine has no facts about its plan");
  const JsonFields fields(*value, "plan.");
  constexpr int64_t kMost = int64_t{1} << 40;
  PlanSizes sizes;
  const auto read = [&](const char* name, int64_t& size) -> Status {
    ASSIGN_OR_RETURN(size, fields.RequiredInteger(name, 1, kMost));
    return {};
  };
  RETURN_IF_ERROR(read("max_model_len", sizes.max_model_len));
  RETURN_IF_ERROR(read("max_num_seqs", sizes.max_num_seqs));
  RETURN_IF_ERROR(read("max_num_batched_tokens", sizes.max_num_batched_tokens));
  RETURN_IF_ERROR(read("num_blocks", sizes.num_blocks));
  return sizes;
}

std::string DifferenceOfFacts(std::string_view expected, std::string_view found) {
  if (expected == found) return "";
  constexpr json::ParseLimits kLimits = {.max_bytes = size_t{1} << 20, .max_depth = 8};
  const auto a = json::Parse(expected, kLimits), b = json::Parse(found, kLimits);
  if (a && b && a->is_object() && b->is_object()) {
    for (const auto& [name, value] : a->as_object()) {
      const json::Value* other = b->Find(name);
      if (other != nullptr && *other == value) continue;
      return fmt::format("{}: expected {}, found {}", name, ShortText(value),
                         other == nullptr ? "nothing" : ShortText(*other));
    }
  }
  return "the engine's plan: expected the recorded one, found another";
}

}  // namespace sluice::recording
