#include "options/rows.h"

namespace sluice::options {

void AddModelRows(std::vector<Option>& table) {
  constexpr Commands kModelCommands =
      kEngineCommands | kInspect | kTokenize | kRender | kQuantize | kDiff | kPull | kPlan;
  Rows rows(table, "Model", kEngineCommands);
  rows.Text("model", "",
            "Folder of a checkpoint, a Hugging Face model id (org/name), or the URL of the model's "
            "page. Files missing from the local Hugging Face cache are downloaded. Usually given "
            "without the flag, as the first word after the command.",
            {.commands = kModelCommands & ~(kEval | kReplay | kVerify),
             .aliases = "-m",
             .value = ValueKind::kModel});
  rows.Text("tokenizer", "",
            "Folder or model id from which the tokenizer and the chat template are read; default: "
            "--model.",
            {.commands = kEngineCommands | kTokenize | kPlan, .value = ValueKind::kModel});
  rows.Text("revision", "", "Branch, tag or commit of a model id; default: main.",
            {.commands = kModelCommands | kRemove, .trtllm = "--hf_revision"});
  rows.Text("tokenizer-revision", "", "Branch, tag or commit of --tokenizer; default: --revision.",
            {.commands = kEngineCommands | kTokenize | kPlan});
  rows.Text("download-dir", "",
            "Folder to which models are downloaded and in which model ids are looked up; default: "
            "HF_HUB_CACHE, else "
            "HF_HOME/hub, else ~/.cache/huggingface/hub.",
            {.commands = kModelCommands | kListModels | kRemove, .value = ValueKind::kFolder});
  rows.Text("hf-token", "",
            "Token for gated and private models, sent only to the hub; default: HF_TOKEN, else the "
            "file that `hf auth login` writes.",
            {.commands = kModelCommands | kLoad, .secret = true, .value_optional = true});
  rows.Choice(
      "load-format", "auto",
      "auto|safetensors|fastsafetensors|dummy|hf|runai_streamer|instanttensor|pt|gguf|"
      "mistral|bitsandbytes|sharded_state|runai_streamer_sharded|tensorizer|npcache",
      "auto, safetensors and the names of safetensors loaders read the checkpoint; dummy needs "
      "only config.json and generates random weights from a seed, to measure a model's speed "
      "without its weights.",
      {.words = "auto|safetensors|fastsafetensors|dummy|hf|runai_streamer|instanttensor|mistral",
       .effect = Effect::kRefused,
       .reason = "checkpoints are read from safetensors files; convert it"});
  rows.Choice("tokenizer-mode", "auto",
              "auto|hf|slow|fast|mistral|alpamayo2_super|cohere|deepseek_v32|deepseek_v4|inkling|"
              "kimi_k3",
              "deepseek_v32 and deepseek_v4 use the built-in chat template of that model. auto "
              "does so if the checkpoint is such a model and has no chat template.",
              {.commands = kEngineArguments,
               .words = "auto|hf|slow|fast|mistral|deepseek_v32|deepseek_v4",
               .acting = "deepseek_v32|deepseek_v4",
               .effect = Effect::kRefused,
               .reason = "this program has a single tokenizer, which reads tokenizer.json"});
  rows.Json("hf-overrides", "",
            "Values that replace those of config.json. Only keys that do not change the shapes of "
            "weights are allowed: rope_scaling (rope_parameters), rope_theta, "
            "max_position_embeddings, sliding_window, use_sliding_window, max_window_layers, "
            "bos_token_id, eos_token_id, num_experts_per_tok; for pooling models, also "
            "architectures, num_labels, classifier_from_token, is_original_qwen3_reranker, method, "
            "is_matryoshka, matryoshka_dimensions. Other keys are refused with an error.");
  rows.Json("rope-scaling", "",
            "RoPE scaling, for contexts longer than in training; overrides config.json: "
            "{\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": "
            "32768}; rope_type is linear, dynamic, yarn, llama3 or default.");
  rows.Number("rope-theta", "", "Base of RoPE; overrides config.json.", {.range = {1, 1e12}});
  rows.Choice("runner", "auto", "auto|generate|pooling|draft",
              "Task of the model: generate produces text; pooling produces one vector per text "
              "(embeddings, scores, classes). auto: pooling if the architecture has no language "
              "model head or the folder has sentence-transformers' modules.json, else generate.",
              {.commands = kEngineArguments,
               .words = "auto|generate|pooling",
               .effect = Effect::kRefused,
               .reason = "drafts come from --speculative-config"});
  rows.Choice("convert", "auto", "auto|none|embed|classify",
              "Use a generating model for pooling: embed returns the hidden state after the last "
              "norm; classify returns the scores of the checkpoint's \"score\" layer. auto: as the "
              "architecture specifies, else embed.",
              {.commands = kEngineArguments});
  rows.Json(
      "pooler-config", "",
      "How one vector is computed from the hidden states: with {\"pooling_type\": \"LAST\"} it is "
      "the last token's state, with CLS the first token's, with MEAN the mean of all. "
      "\"use_activation\": false omits the normalization of embeddings, and sigmoid or softmax of "
      "scores. Default: as specified by the files of sentence-transformers, else LAST.",
      {.commands = kEngineArguments, .aliases = "--override-pooler-config"});
  rows.Flag("allow-nonfinite",
            "Load weights that contain NaN or infinite values, with a warning; otherwise loading "
            "fails, and the error names the tensor. Scales must always be finite.");
  rows.Flag("profile-ops",
            "Measure the time of each operator of the model. The times are logged with the "
            "periodic statistics and exported in /metrics as sluice:operator_seconds; bench "
            "latency and bench throughput print a table. On a device, the host waits for each "
            "operator, and CUDA graphs are not used.",
            {.commands = kEngineArguments});
  rows.Choice("dtype", "auto", "auto|bfloat16|float32|float|half|float16",
              "Data type of activations and matrix products: auto is bfloat16; float32 is for "
              "verification; half and float16 are treated as bfloat16.");
  rows.Text(
      "quantization", "",
      "For an unquantized checkpoint: format to which linear layers are quantized while "
      "loading (fp8 or int8 with one scale per row, fp8_per_block with blocks of 128, "
      "mxfp4). For a quantized checkpoint: the expected format; a different format is an error "
      "(modelopt, modelopt_fp4, fp8, quark, compressed-tensors, awq, gptq, ...). For diff: "
      "the format of the second model.",
      {.commands = kEngineArguments | kDiff | kVerify | kShadow, .aliases = "-q"});
  rows.Choice("head-format", "auto", "auto|fp8|int8|mxfp4",
              "Format to which the output head is quantized while loading; a tied embedding is "
              "quantized, too. Each step reads the whole head, even for few sequences. auto: the "
              "format in the checkpoint.",
              {.commands = kEngineArguments | kDiff | kVerify | kShadow});
  rows.Choice(
      "activation-format", "auto", "auto|bf16|checkpoint",
      "Format to which the inputs of quantized products are rounded: bf16, or the "
      "checkpoint's own. auto: bf16 on a CPU, which is more accurate and as fast; on a "
      "device, the checkpoint's FP8, NVFP4 or MXFP4 if their products are faster, else bf16.");
  rows.Integer(
      "max-model-len", "",
      "Maximum number of tokens of one sequence, prompt and answer together; auto or -1: as many "
      "as fit in memory; default: the limit of the checkpoint, if that fits in memory.",
      {.words = "auto", .range = {-1, 1e9}, .trtllm = "--max_seq_len"});
  rows.Integer(
      "seed", "0",
      "Seed of dummy weights and of requests without a seed; 0: such requests are seeded randomly.",
      {.range = {0, 9007199254740991.0}});
  rows.Text("generation-config", "auto",
            "Source of sampling defaults: auto reads the model's generation_config.json; a folder "
            "or model id reads the file there; vllm uses no file.",
            {.commands = kClients | kServe, .value = ValueKind::kModel});
  rows.Json("override-generation-config", "",
            "Sampling defaults that replace those of generation_config.json, as a JSON object.",
            {.commands = kClients | kServe});
  rows.Integer("max-logprobs", "20",
               "Maximum number of logprobs per token in a request; -1: the whole vocabulary.",
               {.commands = kClients | kServe, .range = {-1, 1e9}});
}

}  // namespace sluice::options
