#include "options/rows.h"

namespace sluice::options {

std::vector<Option> ModelRows() {
  constexpr std::string_view kGroup = "Model";
  constexpr uint32_t kModelCommands =
      kEngineCommands | kInspect | kTokenize | kRender | kQuantize | kDiff;
  return {
      {.name = "model",
       .group = kGroup,
       .commands = kModelCommands & ~uint32_t{kEval},  // whose first word is a file
       .help = "Folder of a checkpoint, or a model id (org/name) that is in the local Hugging Face "
               "cache; usually given "
               "without the flag, as first word after the command.",
       .aliases = "-m"},
      {.name = "tokenizer",
       .group = kGroup,
       .commands = kEngineCommands | kTokenize,
       .help = "Folder or model id whose tokenizer and chat template are used; default: the "
               "model's own."},
      {.name = "revision",
       .group = kGroup,
       .commands = kModelCommands,
       .help = "Branch, tag or commit of a model id in the cache; default: main.",
       .trtllm = "--hf_revision"},
      {.name = "tokenizer-revision",
       .group = kGroup,
       .commands = kEngineCommands | kTokenize,
       .help = "The same for --tokenizer; default: --revision."},
      {.name = "download-dir",
       .group = kGroup,
       .commands = kModelCommands,
       .help =
           "Folder in which model ids are looked up; default: HF_HUB_CACHE, else HF_HOME/hub, else "
           "~/.cache/huggingface/hub."},
      {.name = "load-format",
       .type = Type::kChoice,
       .default_value = "auto",
       .group = kGroup,
       .commands = kEngineCommands,
       .help = "auto and safetensors (in any of its loaders' names) read the checkpoint; dummy "
               "makes seeded random weights "
               "from config.json alone, to run and measure a model's shape without its weights.",
       .choices = "auto|safetensors|fastsafetensors|dummy|hf|runai_streamer|instanttensor|pt|"
                  "gguf|mistral|bitsandbytes|sharded_state|runai_streamer_sharded|tensorizer|"
                  "npcache",
       .words = "auto|safetensors|fastsafetensors|dummy|hf|runai_streamer|instanttensor",
       .refuses = "checkpoints are read from safetensors files; convert it"},
      {.name = "dtype",
       .type = Type::kChoice,
       .default_value = "auto",
       .group = kGroup,
       .commands = kEngineCommands,
       .help = "Numbers that the products are computed from: auto is bfloat16; float32 is for "
               "verification; half and "
               "float16 run as bfloat16.",
       .choices = "auto|bfloat16|float32|float|half|float16"},
      {.name = "quantization",
       .group = kGroup,
       .commands = kServe | kBenchLatency | kBenchThroughput | kRunBatch,
       .help = "What the checkpoint's quantization must be (modelopt, modelopt_fp4, fp8, quark, "
               "compressed-tensors, ...); default: whatever it says. One that contradicts the "
               "checkpoint is refused.",
       .aliases = "-q"},
      {.name = "activation-format",
       .type = Type::kChoice,
       .default_value = "auto",
       .group = kGroup,
       .commands = kEngineCommands,
       .help = "Numbers that the inputs of quantized products are rounded to: bf16, or the "
               "checkpoint's own; auto is bf16 on a CPU, which is more accurate and costs nothing, "
               "and on a device the checkpoint's FP8 and NVFP4 where products of those are faster.",
       .choices = "auto|bf16|checkpoint"},
      {.name = "max-model-len",
       .type = Type::kInteger,
       .group = kGroup,
       .commands = kEngineCommands,
       .help = "Most tokens of one sequence, prompt and answer together; auto or -1: the most that "
               "the memory holds; "
               "default: what the checkpoint allows and the memory holds.",
       .words = "auto",
       .range = {-1, 1e9},
       .trtllm = "--max_seq_len"},
      {.name = "seed",
       .type = Type::kInteger,
       .default_value = "0",
       .group = kGroup,
       .commands = kEngineCommands,
       .help =
           "Seed of dummy weights and of requests that bring none; 0 leaves the latter to chance.",
       .range = {0, 9007199254740991.0}},
      {.name = "generation-config",
       .default_value = "auto",
       .group = kGroup,
       .commands = kServe | kChat | kComplete,
       .help = "Where sampling defaults come from: auto reads the model's generation_config.json, "
               "a folder or model id that one's; vllm uses none."},
      {.name = "override-generation-config",
       .type = Type::kJson,
       .group = kGroup,
       .commands = kServe | kChat | kComplete,
       .help = "Sampling defaults that replace those of generation_config.json, as a JSON object."},
      {.name = "max-logprobs",
       .type = Type::kInteger,
       .default_value = "20",
       .group = kGroup,
       .commands = kServe | kChat | kComplete,
       .help = "Most logprobs of one token that a request may ask for; -1: the whole vocabulary.",
       .range = {-1, 1e9}},
  };
}

}  // namespace sluice::options
