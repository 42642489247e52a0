#include "options/rows.h"

namespace sluice::options {
namespace {

constexpr std::string_view kGroup = "Retired by vLLM";

std::vector<Option> Retired(std::string_view no_effect, std::string_view hint,
                            std::initializer_list<ShortRow> rows) {
  return RowsLike(
      {.group = kGroup, .commands = kEngineArguments, .no_effect = no_effect, .retired = hint},
      rows);
}

std::vector<Option> StepRows() {
  std::vector<Option> rows = Retired(
      "steps are always planned one by one", "leave it out",
      {
          {"num-scheduler-steps", Type::kInteger, "Steps planned at a time."},
          {"multi-step-stream-outputs", Type::kFlag, "Stream each of them."},
          {"num-lookahead-slots", Type::kInteger, "Slots for drafts."},
          {"scheduler-delay-factor", Type::kNumber, "Wait for more prompts."},
          {"max-num-partial-prefills", Type::kInteger, "Prompts computed in part at a time."},
          {"max-long-partial-prefills", Type::kInteger, "Long ones among them."},
          {"use-v2-block-manager", Type::kFlag, "The newer manager of blocks."},
          {"preemption-mode", Type::kString, "What becomes of a victim."},
          {"swap-space", Type::kNumber, "GiB of host memory for victims."},
          {"disable-frontend-multiprocessing", Type::kFlag, "One process for all."},
          {"tokenizer-pool-size", Type::kInteger, "Processes that encode."},
          {"tokenizer-pool-type", Type::kString, "How they are started."},
          {"worker-use-ray", Type::kFlag, "Start workers by Ray."},
          {"engine-use-ray", Type::kFlag, "Start the engine by Ray."},
      });
  const auto graphs = Retired("nothing is compiled or captured at run time",
                              "now --max-cudagraph-capture-size and --cudagraph-capture-sizes",
                              {
                                  {"cuda-graph-sizes", Type::kStrings, "Sizes of CUDA graphs."},
                                  {"max-seq-len-to-capture", Type::kInteger, "Longest of them."},
                              });
  const auto experts =
      Retired("one device computes everything", "now --eplb-config",
              {
                  {"num-redundant-experts", Type::kInteger, "Copies of busy experts."},
                  {"eplb-window-size", Type::kInteger, "Steps that are counted."},
                  {"eplb-step-interval", Type::kInteger, "Steps between two moves."},
                  {"eplb-log-balancedness", Type::kFlag, "Log the balance."},
              });
  for (const auto& part : {graphs, experts}) rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

std::vector<Option> AnswerRows() {
  std::vector<Option> rows = Retired(
      "structured output is not served yet: a request for it is answered 400",
      "now --structured-outputs-config",
      {
          {"guided-decoding-backend", Type::kString, "Who enforces grammars."},
          {"guided-decoding-disable-fallback", Type::kFlag, "And nobody else."},
          {"guided-decoding-disable-any-whitespace", Type::kFlag, "Compact JSON."},
          {"guided-decoding-disable-additional-properties", Type::kFlag, "Closed objects."},
          {"enable-reasoning", Type::kFlag, "Part reasoning from answers."},
          {"logits-processor-pattern", Type::kString, "Python names that requests may use."},
      });
  const auto drafts =
      Retired("drafts change the speed, never the answers", "now --speculative-config",
              {
                  {"speculative-model", Type::kString, "Model of drafts."},
                  {"num-speculative-tokens", Type::kInteger, "Tokens of a draft."},
                  {"ngram-prompt-lookup-max", Type::kInteger, "Longest match."},
                  {"ngram-prompt-lookup-min", Type::kInteger, "Shortest match."},
              });
  const auto scales = Retired("scales of the cache are the checkpoint's, and 1 where it has none",
                              "scales come with the checkpoint",
                              {
                                  {"calculate-kv-scales", Type::kFlag, "Measure them at start."},
                                  {"quantization-param-path", Type::kString, "File of them."},
                              });
  const auto media = Retired("text alone is served", "now --mm-processor-cache-gb 0",
                             {
                                 {"disable-mm-preprocessor-cache", Type::kFlag, "No cache."},
                             });
  const auto adapters = Retired("adapters are not served", "leave it out",
                                {
                                    {"lora-extra-vocab-size", Type::kInteger, "Further tokens."},
                                    {"qlora-adapter-name-or-path", Type::kString, "An adapter."},
                                });
  const auto requests =
      Retired("requests are logged only with --enable-log-requests", "it is the default",
              {
                  {"disable-log-requests", Type::kFlag, "No line a request."},
              });
  for (const auto& part : {drafts, scales, media, adapters, requests})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

std::vector<Option> RefusedRows() {
  std::vector<Option> rows = RowsLike(
      {.group = kGroup,
       .commands = kEngineArguments,
       .refuses = "a checkpoint is served as its config.json describes it; change that file",
       .retired = "now --hf-overrides"},
      {
          {"rope-scaling", Type::kJson, "Stretch positions."},
          {"rope-theta", Type::kNumber, "Base of positions."},
      });
  const auto tasks =
      RowsLike({.group = kGroup,
                .commands = kEngineArguments,
                .refuses = "models generate text here; embeddings and scores are not served",
                .retired = "now --runner and --convert"},
               {
                   {"task", Type::kString, "What the model does.", "auto",
                    "auto|generate|embedding|embed|classify|score|reward|transcription|draft"},
                   {"override-pooler-config", Type::kJson, "How embeddings are made."},
               });
  rows.insert(rows.end(), tasks.begin(), tasks.end());
  for (Option& row : rows) {
    if (row.name != "task") continue;
    // eval has an option of that name.
    row.name = "serve-task";
    row.flag = "task";
    row.words = "generate";
  }
  return rows;
}

}  // namespace

std::vector<Option> RetiredRows() {
  std::vector<Option> rows = StepRows();
  for (const auto& part : {AnswerRows(), RefusedRows()})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

}  // namespace sluice::options
