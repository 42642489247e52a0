#include "engine/plan_draft.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "cache/block_counts.h"
#include "engine/draft_proposer.h"
#include "models/encoder/encoder_spec.h"
#include "models/workspace.h"

namespace sluice {

Status PlanDraft(const ModelConfig& target, const ModelConfig& model, EnginePlan& plan) {
  const DraftConfig& asked = plan.config.draft;
  const auto refuse = [&](std::string reason) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("the draft model in {}: {}", asked.folder.string(), reason),
                "speculative_config");
  };
  if (plan.on_device()) {
    return refuse(
        fmt::format("draft models are computed on a CPU, not yet on {}: say --device cpu, "
                    "or use method ngram or suffix",
                    plan.device_name));
  }
  if (IsEncoder(model.architecture) || model.spec.head.kind != HeadSpec::Kind::kVocabulary)
    return refuse(fmt::format("{} gives no tokens; name a decoder", model.architecture));
  if (model.vocab_size != target.vocab_size) {
    return refuse(fmt::format(
        "its vocabulary has {} tokens, but that of the model in {} has {}; both have to "
        "be the same: use a smaller model of the same family",
        model.vocab_size, plan.config.model_folder.string(), target.vocab_size));
  }
  if (asked.max_model_len && *asked.max_model_len > model.max_position_embeddings) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("max_model_len of the draft model ({}) is larger than its "
                            "max_position_embeddings ({})",
                            *asked.max_model_len, model.max_position_embeddings),
                "speculative_config");
  }
  DraftPlan& draft = plan.draft.emplace();
  draft.model = model;
  draft.adaptive = asked.adaptive;
  draft.keeps_prefixes = plan.config.enable_prefix_caching;
  draft.max_sequences = plan.scheduler.max_proposed_tokens;
  return {};
}

Status PlanDraftBytes(const PlanModelFunction& plan_model, int num_threads, EnginePlan& plan) {
  DraftPlan& draft = *plan.draft;
  ModelOptions& options = draft.options;
  options = ModelOptionsOf(plan);
  options.lora = {};
  draft.layout = KvLayoutOf(draft.model, options);
  options.max_rows = std::max(DraftProposer::kMostCaughtUp, draft.max_sequences);
  options.max_slices = options.max_logit_rows = draft.max_sequences;
  options.max_context = std::min({plan.max_model_len, draft.model.max_position_embeddings,
                                  plan.config.draft.max_model_len.value_or(plan.max_model_len)});
  ASSIGN_OR_RETURN(const ModelMemory memory, plan_model(draft.model, options, num_threads));
  draft.weight_bytes = memory.weight_bytes;
  draft.workspace_bytes =
      plan.num_engines *
      (memory.workspace_bytes + DraftProposer::Bytes(draft, draft.model.vocab_size, num_threads));
  if (plan.token_weight_bytes > 0) {
    draft.cost_ratio = static_cast<double>(memory.token_weight_bytes) /
                       static_cast<double>(plan.token_weight_bytes);
  }
  return {};
}

void PlanDraftCache(int64_t& budget, EnginePlan& plan) {
  DraftPlan& draft = *plan.draft;
  const int64_t of_draft = draft.kv_bytes_per_block();
  const int64_t of_target = plan.kv_bytes_per_block * plan.kv_groups.num_groups();
  const double share = static_cast<double>(of_draft) / static_cast<double>(of_draft + of_target);
  const int64_t most =
      draft.max_sequences * BlocksForTokens(draft.options.max_context, plan.config.block_size);
  // The number that is asked for is the target's.
  const int64_t part = plan.config.num_blocks_override.value_or(
      static_cast<int64_t>(share * static_cast<double>(budget)) / of_draft);
  draft.num_blocks = std::clamp<int64_t>(part, 1, most);
  if (!plan.config.num_blocks_override) budget -= draft.num_blocks * of_draft;
  draft.kv_bytes = plan.num_engines * draft.num_blocks * of_draft;
}

}  // namespace sluice
