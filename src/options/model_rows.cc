#include "options/rows.h"

namespace sluice::options {

void AddModelRows(std::vector<Option>& table) {
  constexpr Commands kModelCommands =
      kEngineCommands | kInspect | kTokenize | kRender | kQuantize | kDiff | kPull | kPlan;
  Rows rows(table, "Model", kEngineCommands);
  rows.Text(
      "model", "",
      "Folder of a checkpoint, a model id (org/name), or the address of its page; what is not "
      "in the local Hugging Face cache is downloaded into it. Usually given without the flag, "
      "as the first word after the command.",
      {.commands = kModelCommands & ~(kEval | kReplay | kVerify),
       .aliases = "-m",
       .value = ValueKind::kModel});
  rows.Text(
      "tokenizer", "",
      "Folder or model id whose tokenizer and chat template are used; default: the model's own.",
      {.commands = kEngineCommands | kTokenize | kPlan, .value = ValueKind::kModel});
  rows.Text("revision", "", "Branch, tag or commit of a model id; default: main.",
            {.commands = kModelCommands | kRemove, .trtllm = "--hf_revision"});
  rows.Text("tokenizer-revision", "", "The same for --tokenizer; default: --revision.",
            {.commands = kEngineCommands | kTokenize | kPlan});
  rows.Text("download-dir", "",
            "Folder that model ids are downloaded to and looked up in; default: HF_HUB_CACHE, else "
            "HF_HOME/hub, else ~/.cache/huggingface/hub.",
            {.commands = kModelCommands | kListModels | kRemove, .value = ValueKind::kFolder});
  rows.Text(
      "hf-token", "",
      "Token for gated and private models, sent to the hub alone; default: HF_TOKEN, else the "
      "file that `hf auth login` writes.",
      {.commands = kModelCommands | kLoad, .secret = true, .value_optional = true});
  rows.Choice(
      "load-format", "auto",
      "auto|safetensors|fastsafetensors|dummy|hf|runai_streamer|instanttensor|pt|gguf|"
      "mistral|bitsandbytes|sharded_state|runai_streamer_sharded|tensorizer|npcache",
      "auto and safetensors (under any of its loaders' names) read the checkpoint; dummy "
      "makes seeded random weights from config.json alone, to run and measure a model's "
      "shape without its weights.",
      {.words = "auto|safetensors|fastsafetensors|dummy|hf|runai_streamer|instanttensor|mistral",
       .effect = Effect::kRefused,
       .reason = "checkpoints are read from safetensors files; convert it"});
  rows.Json("hf-overrides", "",
            "Keys that replace those of config.json where the weights are right for any value: "
            "rope_scaling (rope_parameters), rope_theta, max_position_embeddings, sliding_window, "
            "use_sliding_window, max_window_layers, bos_token_id, eos_token_id, "
            "num_experts_per_tok; and for models that pool architectures, num_labels, "
            "classifier_from_token, is_original_qwen3_reranker, method, is_matryoshka, "
            "matryoshka_dimensions; others are refused by name.");
  rows.Json("rope-scaling", "",
            "Scaling of rotary positions for contexts longer than those of the training, in place "
            "of config.json's: {\"rope_type\": \"yarn\", \"factor\": 4.0, "
            "\"original_max_position_embeddings\": 32768}; rope_type is linear, dynamic, yarn, "
            "llama3 or default.");
  rows.Number("rope-theta", "", "Base of rotary positions, in place of config.json's.",
              {.range = {1, 1e12}});
  rows.Choice(
      "runner", "auto", "auto|generate|pooling|draft",
      "What the model does: generate text, or pool, which is to give one vector for each "
      "text (embeddings, scores, classes); auto: pool where the architecture has no head to "
      "generate with, or the folder has sentence-transformers' modules.json.",
      {.commands = kEngineArguments,
       .words = "auto|generate|pooling",
       .effect = Effect::kRefused,
       .reason = "drafts come from --speculative-config"});
  rows.Choice("convert", "auto", "auto|none|embed|classify",
              "Make a pooling model of one that generates: embed gives the hidden state behind the "
              "last norm, classify the scores of the checkpoint's layer \"score\"; auto: as the "
              "architecture says, else embed.",
              {.commands = kEngineArguments});
  rows.Json("pooler-config", "",
            "How hidden states become one vector: {\"pooling_type\": \"LAST\"} (that of the last "
            "token, CLS that of the first, MEAN the mean of all), \"use_activation\": false leaves "
            "embeddings unnormalized and scores without sigmoid or softmax; default: what "
            "sentence-transformers' files say, else LAST.",
            {.commands = kEngineArguments, .aliases = "--override-pooler-config"});
  rows.Flag("allow-nonfinite",
            "Load weights although some are NaN or infinite, with a warning; otherwise they are "
            "refused by the tensor's name. Scales must be finite in any case.");
  rows.Flag("profile-ops",
            "Count the time of each operator of the model: a line for each in the log beside the "
            "periodic statistics, sluice:operator_seconds in /metrics, and a table after bench "
            "latency and bench throughput. On a device each operator is waited for, and no step is "
            "recorded as a graph.",
            {.commands = kEngineArguments});
  rows.Choice("dtype", "auto", "auto|bfloat16|float32|float|half|float16",
              "Data type of activations and matrix products: auto is bfloat16; float32 is for "
              "verification; half and float16 run as bfloat16.");
  rows.Text("quantization", "",
            "Of a checkpoint of plain weights: round its linear layers while loading (fp8 or int8 "
            "with a scale for each row, fp8_per_block with blocks of 128, mxfp4). Of a quantized "
            "one: what it must be (modelopt, modelopt_fp4, fp8, quark, compressed-tensors, awq, "
            "gptq, ...); another is refused. Of diff: what the second model is loaded as.",
            {.commands = kEngineArguments | kDiff | kVerify | kShadow, .aliases = "-q"});
  rows.Choice("head-format", "auto", "auto|fp8|int8|mxfp4",
              "Round the language model's head while loading, which a step of few sequences reads "
              "whole; a tied embedding is rounded with it. auto: as it is stored.",
              {.commands = kEngineArguments | kDiff | kVerify | kShadow});
  rows.Choice("activation-format", "auto", "auto|bf16|checkpoint",
              "Format that the inputs of quantized products are rounded to: bf16, or the "
              "checkpoint's own; auto is bf16 on a CPU, which is more accurate at no cost, and on "
              "a device the checkpoint's FP8 and NVFP4 where products of those are faster.");
  rows.Integer("max-model-len", "",
               "Most tokens of one sequence, prompt and answer together; auto or -1: as many as "
               "fit in memory; default: the limit of the checkpoint, if that fits in memory.",
               {.words = "auto", .range = {-1, 1e9}, .trtllm = "--max_seq_len"});
  rows.Integer(
      "seed", "0",
      "Seed of dummy weights and of requests without a seed; 0: such requests are seeded randomly.",
      {.range = {0, 9007199254740991.0}});
  rows.Text("generation-config", "auto",
            "Source of sampling defaults: auto reads the model's generation_config.json, a folder "
            "or model id reads the one there, vllm uses none.",
            {.commands = kClients | kServe, .value = ValueKind::kModel});
  rows.Json("override-generation-config", "",
            "Sampling defaults that replace those of generation_config.json, as a JSON object.",
            {.commands = kClients | kServe});
  rows.Integer("max-logprobs", "20",
               "Most logprobs of one token that a request may ask for; -1: the whole vocabulary.",
               {.commands = kClients | kServe, .range = {-1, 1e9}});
}

}  // namespace sluice::options
