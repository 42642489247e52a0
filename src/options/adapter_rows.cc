#include "options/rows.h"

namespace sluice::options {

void AddAdapterRows(std::vector<Option>& table) {
  Rows rows(table, "LoRA adapters", kEngineArguments);
  rows.Flag("enable-lora",
            "Serve LoRA adapters of the model; a request names an adapter as its \"model\".");
  rows.List("lora-modules", "",
            "Adapters to load at start: name=folder, or {\"name\": ..., \"path\": ..., "
            "\"base_model_name\": ...}. A folder has the format that peft writes.");
  rows.Integer("max-loras", "1",
               "Adapters that one step may use. A step may use all adapters in memory, whose "
               "number is the maximum of this option, --max-cpu-loras and the number of "
               "--lora-modules; on a device with --max-cpu-loras, it is this option.",
               {.range = {1, 4096}, .needs = "enable-lora"});
  rows.Integer("max-cpu-loras", "",
               "Number of adapters in memory; others are read again when a request names them. "
               "Default: --max-loras, or the number of --lora-modules. A device has memory for "
               "--max-loras adapters; all others are read again.",
               {.range = {1, 4096}, .needs = "enable-lora"});
  rows.Choice("max-lora-rank", "16", "1|8|16|32|64|128|256|320|512",
              "Maximum rank of an adapter; memory is reserved for this rank.",
              {.needs = "enable-lora"});
  rows.Choice(
      "lora-dtype", "auto", "auto|bfloat16|float16",
      "Data type of adapters in memory; auto: that of --dtype. float16 is stored as bfloat16.",
      {.needs = "enable-lora"});
  rows.List("lora-target-modules", "",
            "Modules that adapters may change, by the last part of their names (o_proj, down_proj; "
            "experts stands for the modules of all experts); memory is reserved only for these. "
            "Default: all modules, and experts if an adapter of --lora-modules changes them.",
            {.needs = "enable-lora"});
  rows.List("lora-modules-to-save", "",
            "Modules whose weights may be replaced by adapters that are loaded later, as in peft's "
            "modules_to_save, by the last part of their names (lm_head, embed_tokens). Memory for "
            "them is reserved for each adapter. Not needed for modules that adapters of "
            "--lora-modules replace, nor for biases and norms. On a CPU.",
            {.needs = "enable-lora"});
  rows.Flag("allow-runtime-lora-updating",
            "Serve /v1/load_lora_adapter and /v1/unload_lora_adapter. They let clients make the "
            "server read folders of this machine.",
            {.commands = kServe, .environment = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"});
  rows.Text("lora-resolver-cache-dir", "",
            "Folder of adapters: a request for an unknown model gets the adapter in the subfolder "
            "of that name, if there is one. Needs --allow-runtime-lora-updating.",
            {.commands = kServe,
             .environment = "VLLM_LORA_RESOLVER_CACHE_DIR",
             .needs = "allow-runtime-lora-updating",
             .value = ValueKind::kFolder});
}

}  // namespace sluice::options
