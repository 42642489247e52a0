#include "options/rows.h"

namespace sluice::options {

void AddQuantizeRows(std::vector<Option>& table) {
  Rows rows(table, "Quantization", kQuantize);
  rows.Choice("to", "",
              "modelopt-fp8|modelopt-nvfp4|quark-fp8|quark-mxfp4|block-fp8|fp8-dynamic|int8-w8a8",
              "Format to write: those of ModelOpt and Quark, DeepSeek's FP8 with blocks of "
              "128x128, or llm-compressor's dynamic FP8 and INT8.");
  rows.Choice("quantize-kv-cache", "none", "none|fp8",
              "fp8: store scales for an FP8 KV cache, measured with --calibrate.",
              {.flag = "kv-cache"});
  rows.List("exclude", "",
            "Modules that are not quantized: names, globs (*.self_attn.*) or regular expressions "
            "(re:...). Embeddings, routers and the output head are never quantized.");
  rows.Text("calibrate", "",
            "File with text for measuring inputs, keys and values: plain text, or JSON lines with "
            "\"text\", \"prompt\" or \"messages\".",
            {.value = ValueKind::kFile});
  rows.Integer("calibrate-tokens", "65536",
               "Maximum number of tokens of the --calibrate text to use.", {.range = {1, 1e8}});
  rows.Choice("group-scales", "amax", "amax|mse",
              "How the scales for groups of 4-bit weights are computed: amax uses the largest "
              "magnitude, like ModelOpt and similar tools; mse minimizes the squared error.");
  rows.Number("input-percentile", "100",
              "Percentile of the inputs' magnitudes that a stored input scale covers; larger "
              "inputs are clipped.",
              {.range = {50, 100}});
  rows.Size("shard-size", "4GiB", "Maximum size of each file of the result.",
            {.range = {65536, 1e15}});
  rows.Text("diff-text", "",
            "File with text on which both models are run: plain text, or JSON lines with \"text\", "
            "\"prompt\" or \"messages\". Without this option, only the weights are compared.",
            {.commands = kDiff, .flag = "text", .value = ValueKind::kFile});
  rows.Integer("diff-tokens", "8192", "Maximum number of tokens of the --calibrate text to use.",
               {.commands = kDiff, .flag = "tokens", .range = {2, 1e8}});
  rows.Integer("chunk-tokens", "512",
               "Number of tokens per chunk; chunks are computed independently.",
               {.commands = kQuantize | kDiff, .range = {2, 1048576}});
  rows.Choice("diff-activation-format", "auto", "auto|bf16|checkpoint",
              "--activation-format (see serve) of both models.",
              {.commands = kDiff, .flag = "activation-format"});
  rows.Flag("diff-json", "Print a JSON object.", {.commands = kQuantize | kDiff, .flag = "json"});
}

}  // namespace sluice::options
