#include "options/rows.h"

namespace sluice::options {

void AddModelRows(std::vector<Option>& table) {
  constexpr uint32_t kModelCommands =
      kEngineCommands | kInspect | kTokenize | kRender | kQuantize | kDiff;
  Rows rows(table, "Model", kEngineCommands);
  rows.Text("model", "",
            "Folder of a checkpoint, or a model id (org/name) that is in the local Hugging Face "
            "cache; usually given without the flag, as the first word after the command.",
            {.commands = kModelCommands & ~kEval, .aliases = "-m"});
  rows.Text(
      "tokenizer", "",
      "Folder or model id whose tokenizer and chat template are used; default: the model's own.",
      {.commands = kEngineCommands | kTokenize});
  rows.Text("revision", "", "Branch, tag or commit of a model id in the cache; default: main.",
            {.commands = kModelCommands, .trtllm = "--hf_revision"});
  rows.Text("tokenizer-revision", "", "The same for --tokenizer; default: --revision.",
            {.commands = kEngineCommands | kTokenize});
  rows.Text("download-dir", "",
            "Folder in which model ids are looked up; default: HF_HUB_CACHE, else HF_HOME/hub, "
            "else ~/.cache/huggingface/hub.",
            {.commands = kModelCommands});
  rows.Choice("load-format", "auto",
              "auto|safetensors|fastsafetensors|dummy|hf|runai_streamer|instanttensor|pt|gguf|"
              "mistral|bitsandbytes|sharded_state|runai_streamer_sharded|tensorizer|npcache",
              "auto and safetensors (under any of its loaders' names) read the checkpoint; dummy "
              "makes seeded random weights from config.json alone, to run and measure a model's "
              "shape without its weights.",
              {.words = "auto|safetensors|fastsafetensors|dummy|hf|runai_streamer|instanttensor",
               .effect = Effect::kRefused,
               .reason = "checkpoints are read from safetensors files; convert it"});
  rows.Flag("allow-nonfinite",
            "Load weights although some are NaN or infinite, with a warning; otherwise they are "
            "refused by the tensor's name. Scales must be finite in any case.");
  rows.Choice("dtype", "auto", "auto|bfloat16|float32|float|half|float16",
              "Data type of activations and matrix products: auto is bfloat16; float32 is for "
              "verification; half and float16 run as bfloat16.");
  rows.Text(
      "quantization", "",
      "The quantization that the checkpoint must have (modelopt, modelopt_fp4, fp8, quark, "
      "compressed-tensors, ...); default: any. A value that contradicts the checkpoint is refused.",
      {.commands = kEngineArguments, .aliases = "-q"});
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
            {.commands = kClients | kServe});
  rows.Json("override-generation-config", "",
            "Sampling defaults that replace those of generation_config.json, as a JSON object.",
            {.commands = kClients | kServe});
  rows.Integer("max-logprobs", "20",
               "Most logprobs of one token that a request may ask for; -1: the whole vocabulary.",
               {.commands = kClients | kServe, .range = {-1, 1e9}});
}

}  // namespace sluice::options
