#include "engine/plan_draft.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "cache/block_counts.h"
#include "engine/draft_proposer.h"
#include "engine/head_proposer.h"
#include "models/drafter.h"
#include "models/encoder/encoder_spec.h"
#include "models/kv_layout.h"

namespace sluice {

namespace {

// With more sequences in a step, nothing is proposed.
constexpr int64_t kMaxDrafting = 32;

}  // namespace

std::string DrafterName(const DraftConfig& draft) {
  switch (draft.kind) {
    case DraftConfig::Kind::kModel: break;
    case DraftConfig::Kind::kEagle3:
      return fmt::format("the EAGLE head in {}", draft.folder.string());
    case DraftConfig::Kind::kDflash:
      return fmt::format("the DFlash drafter in {}", draft.folder.string());
    case DraftConfig::Kind::kMtp: return "the layers that propose tokens (method mtp)";
  }
  return fmt::format("the draft model in {}", draft.folder.string());
}

Status PlanDraft(const ModelConfig& target, const ModelConfig& model,
                 std::shared_ptr<const DrafterSpec> head, EnginePlan& plan) {
  const DraftConfig& asked = plan.config.draft;
  const auto refuse = [&](std::string reason) {
    return Fail(ErrorCode::kUnsupported, fmt::format("{}: {}", DrafterName(asked), reason),
                "speculative_config");
  };
  if (plan.on_device() && !asked.is_head()) {
    return refuse(
        fmt::format("draft models run only on a CPU, not on {}: use --device cpu, a drafting head, "
                    "or method ngram or suffix",
                    plan.device_name));
  }
  if (plan.on_device() && plan.ranks.num_ranks() > 1) {
    return refuse(
        fmt::format("drafting heads run only on one device, not on {}: omit tensor_parallel_size "
                    "and pipeline_parallel_size, or use method ngram or suffix",
                    plan.ranks.num_ranks()));
  }
  if (asked.is_head()) {
    if (IsEncoder(target.architecture) || target.spec.head.kind != HeadSpec::Kind::kVocabulary)
      return refuse(fmt::format("{} gives no tokens", target.architecture));
  }
  if (IsEncoder(model.architecture) || model.spec.head.kind != HeadSpec::Kind::kVocabulary)
    return refuse(fmt::format("{} generates no tokens; use a decoder", model.architecture));
  if (model.vocab_size != target.vocab_size) {
    return refuse(
        fmt::format("its vocabulary has {} tokens, but that of the model in {} has {}; both must "
                    "be the same: use a smaller model of the same family",
                    model.vocab_size, plan.config.model_folder.string(), target.vocab_size));
  }
  if (asked.max_model_len && *asked.max_model_len > model.max_position_embeddings) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("max_model_len of the draft model ({}) is larger than {}",
                            *asked.max_model_len, PositionsText(model)),
                "speculative_config");
  }
  DraftPlan& draft = plan.draft.emplace();
  draft.model = model;
  draft.options.drafter = std::move(head);
  draft.on_device = plan.on_device();
  if (draft.on_device) draft.options.target = std::make_shared<const ModelConfig>(target);
  if (asked.is_head() && plan.ranks.num_ranks() > 1)
    draft.copied_bytes = CopiedTableBytes(target, *draft.options.drafter, plan.dtype);
  draft.adaptive = asked.adaptive;
  draft.keeps_prefixes = plan.config.enable_prefix_caching;
  draft.max_sequences = std::min(plan.scheduler.max_proposed_tokens, kMaxDrafting);
  draft.handed_rows = asked.is_head() ? plan.scheduler.max_num_batched_tokens : 0;
  draft.handed_steps = plan.scheduler.steps_in_flight;
  return {};
}

Status PlanDraftBytes(const PlanModelFunction& plan_model, int num_threads, EnginePlan& plan) {
  DraftPlan& draft = *plan.draft;
  ModelOptions& options = draft.options;
  std::shared_ptr<const DrafterSpec> head = std::move(options.drafter);
  std::shared_ptr<const ModelConfig> target = std::move(options.target);
  options = ModelOptionsOf(plan);
  options.drafter = std::move(head);
  options.target = std::move(target);
  options.op_times = nullptr;
  options.lora = {};
  options.image_rows = 0;
  options.handed = {};
  draft.layout = KvLayoutOf(draft.model, options);
  options.max_rows =
      std::max(draft.is_head() ? HeadProposer::kMostRows : DraftProposer::kMostCaughtUp,
               draft.max_sequences);
  // Large enough for a whole step: without chunked prefill, a step can contain a whole prompt.
  if (draft.is_head()) draft.handed_rows = plan.scheduler.max_num_batched_tokens;
  options.max_slices = options.max_logit_rows = draft.max_sequences;
  const bool drafts_blocks = draft.is_head() && draft.head().drafts_blocks();
  std::erase_if(options.recorded.sequences, [&](int64_t sequences) {
    return drafts_blocks || sequences > draft.max_sequences;
  });
  if (drafts_blocks) {
    options.max_rows = std::max(options.max_rows, draft.max_sequences * draft.head().block_size);
    // Includes the draft tokens of a step.
    options.max_logit_rows = std::max(draft.max_sequences, plan.scheduler.max_proposed_tokens);
  }
  if (draft.on_device) options.kept_rows = draft.max_sequences * HeadProposer::kMostKept;
  options.max_context = std::min({plan.max_model_len, draft.model.max_position_embeddings,
                                  plan.config.draft.max_model_len.value_or(plan.max_model_len)});
  ASSIGN_OR_RETURN(const ModelMemory memory, plan_model(draft.model, options, num_threads));
  if (memory.state_bytes_per_slot > 0) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("the draft model in {}: its recurrent layers cannot undo tokens; use a "
                            "model in which all layers have attention",
                            plan.config.draft.folder.string()),
                "speculative_config");
  }
  draft.weight_bytes = memory.weight_bytes + draft.copied_bytes;
  const int64_t arrays =
      draft.is_head()
          ? HeadProposer::Bytes(draft, num_threads) + draft.HandedNumbers() * int64_t{sizeof(float)}
          : DraftProposer::Bytes(draft, draft.model.vocab_size, num_threads);
  plan.graph_bytes += memory.graph_bytes;
  if (draft.on_device) draft.host_bytes = plan.num_engines * arrays;
  draft.workspace_bytes =
      plan.num_engines * (memory.workspace_bytes + (draft.on_device ? 0 : arrays));
  int64_t read = memory.token_weight_bytes;
  if (draft.is_head() && draft.head().head.empty())
    read += draft.model.vocab_size * draft.model.hidden_size * BitsPerElement(plan.dtype) / 8;
  if (plan.token_weight_bytes > 0) {
    draft.cost_ratio = static_cast<double>(read) / static_cast<double>(plan.token_weight_bytes);
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
  // num_blocks_override sets the target's number of blocks. The draft gets the same number in
  // addition, if it can use that many.
  const int64_t part = plan.config.num_blocks_override.value_or(
      static_cast<int64_t>(share * static_cast<double>(budget)) / of_draft);
  draft.num_blocks = std::clamp<int64_t>(part, 1, most);
  if (!plan.config.num_blocks_override) budget -= draft.num_blocks * of_draft;
  draft.kv_bytes = plan.num_engines * draft.num_blocks * of_draft;
}

}  // namespace sluice
