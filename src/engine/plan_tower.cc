#include "engine/plan_tower.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/json_fields.h"
#include "base/json_file.h"
#include "base/log.h"
#include "models/weight_loader.h"

namespace sluice {
namespace {

// For Gemma 4: the maximum number of tokens per image, from the image processor's files.
int64_t SoftTokensOf(const std::filesystem::path& folder) {
  constexpr int64_t kDefault = 280, kMost = 1 << 16;
  for (const char* name : {"processor_config.json", "preprocessor_config.json"}) {
    const auto file = ReadJsonObject(folder / name);
    if (!file) continue;
    const json::Value* inner = file->Find("image_processor");
    const json::Value& settings = inner != nullptr && inner->is_object() ? *inner : *file;
    const auto tokens = JsonFields(settings, "").Integer("max_soft_tokens", 1, kMost);
    if (tokens && *tokens) return **tokens;
  }
  return kDefault;
}

ResolvedTower NoTower(std::string reason) {
  ResolvedTower resolved;
  resolved.reason = std::move(reason);
  return resolved;
}

// Like NoTower, but for a model that has an image tower; adds a warning.
ResolvedTower TowerRefused(std::string reason) {
  LOG_WARNING("engine", "images are not accepted: {}", reason);
  return NoTower(std::move(reason));
}

// How many copies of all image rows are stored: by rank 0, and by the ranks that receive steps as
// messages (StepEncoder, StepDecoder, MessageStepChannel).
int64_t CopiesOfImageRows(const EnginePlan& plan) {
  // The encoder's copy, and the copies in messages being sent.
  const int64_t of_sender = plan.scheduler.steps_in_flight + 2;
  // A process is either rank 0 or another rank; other ranks store less than rank 0.
  if (plan.config.are_ranks_processes) return 1 + of_sender;
  if (plan.on_device() || plan.ranks.num_stages == 1) return 1;
  constexpr int64_t kOfReceiver = 2;  // the message, and the rows that it contains
  return 1 + of_sender + (plan.ranks.num_ranks() - 1) * kOfReceiver;
}

}  // namespace

ResolvedTower ResolveTower(const EngineConfig& config, const ModelConfig& model) {
  const auto spec = ReadTowerSpec(model);
  if (!spec) return TowerRefused(spec.error().message);
  if (!spec->has_value()) return NoTower("the model has no image tower");
  if (!config.takes_images) {
    return NoTower(
        "the server was started with --language-model-only, or --limit-mm-per-prompt permits none");
  }
  ResolvedTower resolved;
  resolved.spec = **spec;
  if ((*spec)->sees_both_ways) {
    const int64_t rows = (*spec)->side * (*spec)->side / (*spec)->group();
    resolved.whole_rows = rows > 0 ? rows : SoftTokensOf(config.model_folder);
  }
  if (config.dummy_weights) return resolved;
  const auto checkpoint = Checkpoint::Open(config.model_folder);
  if (!checkpoint) return resolved;  // the error is reported later, when the weights are loaded
  if (!HoldsTower(**spec, *checkpoint)) return NoTower("the checkpoint has only the text part");
  TowerWeights unfilled;
  const Status status =
      CheckListed(ListTowerParameters(**spec, unfilled), *checkpoint, *model.scheme);
  if (!status) return TowerRefused(status.error().message);
  return resolved;
}

void PlanImages(const ResolvedTower& resolved, EnginePlan& plan) {
  plan.no_images = resolved.reason;
  if (!resolved.spec) return;
  const auto refuse = [&plan](std::string reason) {
    plan.no_images = std::move(reason);
    plan.warnings.push_back("images are not accepted: " + plan.no_images);
  };
  if (plan.pooling) return refuse("the model pools");
  plan.tower = *resolved.spec;
  if (resolved.whole_rows == 0) return;
  // A step must have room for a whole image and for one token of each decoding sequence.
  SchedulerLimits& step = plan.scheduler;
  const int64_t least = step.max_num_seqs + resolved.whole_rows;
  if (step.max_num_batched_tokens < least) {
    plan.notes.push_back(
        fmt::format("max_num_batched_tokens is {}, not {}: the {} tokens of an image attend to "
                    "each other and are computed in one step",
                    least, step.max_num_batched_tokens, resolved.whole_rows));
    step.max_num_batched_tokens = least;
  }
  step.max_prompt_logit_rows = std::max(step.max_prompt_logit_rows, resolved.whole_rows);
}

void PlanPromptRows(const ModelConfig& model, EnginePlan& plan) {
  const DecoderSpec& spec = model.spec;
  std::string& reason = plan.no_prompt_rows;
  if (plan.pooling)
    reason = "the model pools";
  else if (plan.on_device())
    reason = "they are supported only on the CPU; serve with --device cpu";
  else if (plan.ranks.num_stages > 1)
    reason = "prompt embeddings cannot be sent to pipeline stages yet; use one stage";
  else if (spec.layer_embeddings.width > 0)
    reason = "layers of this model read the ids of the tokens, too";
  else if (spec.embedding_scale != 1 || spec.norms_embedding)
    reason = "this model scales its embeddings, and it is unknown whether given rows are scaled";
  else if (spec.image_levels > 0)
    reason =
        "several layers of this model read rows of images, but given rows are for only one layer";
}

void PlanImageRows(EnginePlan& plan) {
  if (!plan.tower) return;
  const TowerSpec& spec = *plan.tower;
  TowerOptions& options = plan.tower_options;
  options.compute_type = plan.dtype;
  options.most_patches = std::min(kMostTowerPatches, plan.max_model_len * spec.group());
  options.load_format = plan.config.dummy_weights ? ModelOptions::LoadFormat::kDummy
                                                  : ModelOptions::LoadFormat::kAuto;
  options.dummy_seed = plan.config.seed;
  options.allow_nonfinite = plan.config.allow_nonfinite;
  plan.scheduler.max_image_rows = plan.scheduler.max_num_batched_tokens;
  plan.image_rows = std::max(MostImageRows(spec, options), plan.scheduler.max_num_batched_tokens);
}

void PlanTowerBytes(const ModelConfig& model, int num_threads, EnginePlan& plan) {
  if (!plan.tower) return;
  plan.tower_on_device = false;
  if (plan.on_device() && plan.ranks.num_ranks() == 1) {
    const auto memory =
        PlanTowerOnDevice(*plan.tower, *model.scheme, plan.tower_options, num_threads, plan.device);
    plan.tower_on_device = memory.has_value();
    if (memory) {
      plan.tower_bytes = memory->weight_bytes + memory->workspace_bytes;
      plan.weight_bytes += memory->device.weight_bytes;
      plan.workspace_bytes += memory->device.workspace_bytes;
      return;
    }
    plan.tower_on_cpu = memory.error().message;
  } else if (plan.on_device()) {
    plan.tower_on_cpu = "several devices share the model";
  }
  const TowerMemory memory = PlanTower(*plan.tower, *model.scheme, plan.tower_options, num_threads);
  const int64_t workspace = memory.workspace_bytes + CopiesOfImageRows(plan) * plan.image_rows *
                                                         plan.tower->row_width() *
                                                         int64_t{sizeof(float)};
  if (plan.on_device()) {
    plan.tower_bytes = memory.weight_bytes + workspace;
    return;
  }
  plan.weight_bytes += memory.weight_bytes;
  plan.workspace_bytes += workspace;
}

}  // namespace sluice
