#include "options/rows.h"

namespace sluice::options {
namespace {

constexpr std::string_view kLoading = "Reading checkpoints";
constexpr std::string_view kCache = "Cache and steps as vLLM knows them";

Option NoEffect(std::string_view group, std::string_view why) {
  return {.group = group, .commands = kEngineArguments, .no_effect = why};
}
Option Refused(std::string_view group, std::string_view why) {
  return {.group = group, .commands = kEngineArguments, .refuses = why};
}

std::vector<Option> FileRows() {
  std::vector<Option> rows = {
      {.name = "trust-remote-code",
       .type = Type::kFlag,
       .default_value = "false",
       .group = kLoading,
       .commands = kEngineCommands | kTokenize | kEval,
       .help = "Permission to run a checkpoint's own Python code.",
       .no_effect = "no code of a checkpoint is ever run"},
      {.name = "hf-token",
       .group = kLoading,
       .commands = kEngineArguments,
       .help = "Key for private repositories.",
       .no_effect = "nothing is downloaded: models are folders or in the local cache",
       .secret = true,
       .value_optional = true},
      {.name = "tokenizer-mode",
       .type = Type::kChoice,
       .default_value = "auto",
       .group = kLoading,
       .commands = kEngineArguments,
       .help = "Which tokenizer library.",
       .choices = "auto|hf|slow|fast",
       .no_effect = "there is one tokenizer, and it reads tokenizer.json"},
  };
  const auto more = RowsLike(
      NoEffect(kLoading, "files are mapped and read in place, by all threads at once"),
      {
          {"safetensors-load-strategy", Type::kString, "How vLLM reads files.", "",
           "eager|lazy|prefetch|torchao"},
          {"safetensors-prefetch-num-threads", Type::kInteger, "Threads that read ahead."},
          {"safetensors-prefetch-block-size", Type::kInteger, "Bytes that they read at a time."},
          {"model-loader-extra-config", Type::kJson, "Settings of a loader."},
          {"ignore-patterns", Type::kStrings, "Files to leave out of a download."},
          {"use-tqdm-on-load", Type::kFlag, "A progress bar.", "true"},
          {"pt-load-map-location", Type::kString, "Device for PyTorch files."},
          {"config-format", Type::kString, "Whose config.json.", "", "auto|hf|mistral"},
          {"code-revision", Type::kString, "Revision of a checkpoint's own code."},
          {"model-class-overrides", Type::kJson, "Other Python classes for models."},
          {"allow-deprecated-quantization", Type::kFlag, "Take outdated schemes."},
          {"disable-sliding-window", Type::kFlag, "Cap the length to the window."},
          {"skip-tokenizer-init", Type::kFlag, "No tokenizer, token ids only."},
      });
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

std::vector<Option> RefusedFileRows() {
  std::vector<Option> rows = RowsLike(
      Refused(kLoading, "a checkpoint is served as its config.json describes it; change that file"),
      {
          {"hf-overrides", Type::kJson, "Keys that replace those of config.json.", "{}"},
          {"hf-config-path", Type::kString, "Another config.json."},
      });
  const auto numbers = RowsLike(
      Refused(kLoading,
              "weights are served as they are stored; `sluice quantize` makes other "
              "checkpoints"),
      {
          {"quantization-config", Type::kJson, "Quantize while loading."},
          {"kv-cache-dtype-skip-layers", Type::kStrings, "Layers with a cache in full precision."},
      });
  const auto tasks = RowsLike(
      Refused(kLoading, "models generate text here; embeddings, scores and drafts are not served"),
      {
          {"runner", Type::kString, "What the model does.", "auto", "auto|generate|pooling|draft"},
          {"convert", Type::kString, "Make it do something else.", "auto",
           "auto|none|embed|classify"},
          {"pooler-config", Type::kJson, "How embeddings are made."},
      });
  const auto python =
      RowsLike(Refused(kLoading, "there is no Python in this program; leave it out"),
               {
                   {"logits-processors", Type::kStrings, "Python classes that change logits."},
                   {"io-processor-plugin", Type::kString, "Python class for requests."},
                   {"scheduler-cls", Type::kString, "Python class of the scheduler."},
                   {"worker-cls", Type::kString, "Python class of the worker.", "auto"},
                   {"worker-extension-cls", Type::kString, "Python class mixed into it."},
                   {"watermark-config", Type::kJson, "Hidden marks in generated text."},
               });
  for (const auto& part : {numbers, tasks, python})
    rows.insert(rows.end(), part.begin(), part.end());
  for (Option& row : rows) {
    // What the server does anyway is no refusal.
    if (row.name == "runner") row.words = "generate";
    if (row.name == "convert") row.words = "none";
  }
  return rows;
}

std::vector<Option> CacheRows() {
  return RowsLike(
      NoEffect(kCache,
               "the cache lives in memory alone, and a preempted sequence is computed "
               "again"),
      {
          {"kv-offloading-size", Type::kNumber, "GiB of host memory for the cache."},
          {"kv-offloading-backend", Type::kString, "Who keeps it.", "", "lmcache|native"},
          {"cpu-offload-gb", Type::kNumber, "GiB of weights in host memory."},
          {"cpu-offload-params", Type::kStrings, "Which weights."},
          {"offload-backend", Type::kString, "How weights travel.", "", "auto|prefetch|uva"},
          {"offload-group-size", Type::kInteger, "Layers that travel together."},
          {"offload-num-in-group", Type::kInteger, "How many of a group."},
          {"offload-prefetch-step", Type::kInteger, "How early."},
          {"offload-params", Type::kStrings, "Which weights."},
          {"prefix-caching-hash-algo", Type::kString, "Hash of cached prompts.", "",
           "sha256|sha256_cbor|xxhash|xxhash_cbor"},
          {"prefix-cache-retention-interval", Type::kInteger, "Which blocks are kept."},
          {"prefix-match-unit", Type::kInteger, "Tokens compared at a time."},
          {"kv-sharing-fast-prefill", Type::kFlag, "Layers that share a cache."},
          {"swa-bounded-replay", Type::kFlag, "Compute windows again.", "true"},
          {"disable-hybrid-kv-cache-manager", Type::kFlag, "One kind of cache for all layers."},
          {"kv-cache-metrics", Type::kFlag, "Watch the life of blocks."},
          {"kv-cache-metrics-sample", Type::kNumber, "Share of blocks that is watched."},
          {"kv-events-config", Type::kJson, "Tell others of cached blocks."},
          {"ec-manager-config", Type::kJson, "Cache of pictures."},
          {"enable-sleep-mode", Type::kFlag, "Give memory back on demand."},
          {"sleep-mode-offload-cudagraph", Type::kFlag, "CUDA graphs too."},
          {"sleep-preserve-parameter-names", Type::kStrings, "Weights that stay."},
          {"weight-transfer-config", Type::kJson, "New weights at run time."},
      });
}

std::vector<Option> StepRows() {
  std::vector<Option> rows =
      RowsLike(NoEffect(kCache, "the scheduler decides it by the state of the cache"),
               {
                   {"scheduler-reserve-full-isl", Type::kFlag, "Admit what fits whole.", "true"},
                   {"watermark", Type::kNumber, "Share of blocks kept free."},
                   {"prefill-schedule-interval", Type::kInteger, "Steps between two admissions."},
                   {"long-prefill-token-threshold-adaptive", Type::kFlag, "Adapt the chunk."},
                   {"max-num-active-seqs", Type::kInteger, "Most sequences with blocks."},
                   {"disable-chunked-mm-input", Type::kFlag, "Pictures whole in one step."},
                   {"max-num-queued-tokens", Type::kInteger, "Most prompt tokens that wait."},
               });
  rows.push_back({.name = "async-scheduling",
                  .type = Type::kFlag,
                  .default_value = "true",
                  .group = kCache,
                  .commands = kEngineArguments,
                  .help = "Overlap scheduling with computing.",
                  .no_effect = "text work and HTTP always overlap the next step"});
  rows.push_back({.name = "max-num-scheduled-tokens",
                  .type = Type::kInteger,
                  .group = kCache,
                  .commands = kEngineArguments,
                  .help = "Most tokens of a step.",
                  .range = {1, 1e7},
                  .mapped_to = "--max-num-batched-tokens, where that is larger or not given"});
  const auto refused =
      RowsLike(Refused(kCache, "prompts and answers are computed by the same server; leave it out"),
               {
                   {"kv-transfer-config", Type::kJson, "Prefill and decode in two servers."},
                   {"ec-transfer-config", Type::kJson, "Pictures in another server."},
               });
  const auto outputs =
      RowsLike(NoEffect(kCache, "no request can ask for it"),
               {
                   {"enable-prompt-embeds", Type::kFlag, "Prompts as vectors."},
                   {"enable-return-routed-experts", Type::kFlag, "Tell which experts were used."},
                   {"return-sampling-mask", Type::kFlag, "Tell which tokens could be drawn."},
                   {"aux-output-config", Type::kJson, "Further outputs."},
                   {"enable-trace-replay", Type::kFlag, "Record steps."},
               });
  for (const auto& part : {refused, outputs}) rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

}  // namespace

std::vector<Option> LoadingRows() {
  std::vector<Option> rows = FileRows();
  for (const auto& part : {RefusedFileRows(), CacheRows(), StepRows()})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

}  // namespace sluice::options
