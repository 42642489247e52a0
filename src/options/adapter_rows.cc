#include "options/rows.h"

namespace sluice::options {

void AddAdapterRows(std::vector<Option>& table) {
  Rows rows(table, "LoRA adapters", kEngineArguments);
  rows.Flag(
      "enable-lora",
      "Serve LoRA adapters of the model; requests select an adapter with the field \"model\".");
  rows.List("lora-modules", "",
            "Adapters to load at start: name=folder, or {\"name\": ..., \"path\": ..., "
            "\"base_model_name\": ...}. A folder has peft's format.");
  rows.Integer("max-loras", "1",
               "Number of adapters that one step may use. On a CPU, a step may use all adapters in "
               "memory: the maximum of this option, --max-cpu-loras and the number of "
               "--lora-modules. On a device, --max-cpu-loras does not increase the number.",
               {.range = {1, 4096}, .needs = "enable-lora"});
  rows.Integer("max-cpu-loras", "",
               "Number of adapters in memory; other adapters are read from their files again when "
               "a request names them. Default: --max-loras, or the number of --lora-modules. A "
               "device has memory for --max-loras adapters; all others are read again.",
               {.range = {1, 4096}, .needs = "enable-lora"});
  rows.Choice("max-lora-rank", "16", "1|8|16|32|64|128|256|320|512",
              "Maximum rank of adapters; memory is reserved for this rank.",
              {.needs = "enable-lora"});
  rows.Choice(
      "lora-dtype", "auto", "auto|bfloat16|float16",
      "Data type of adapters in memory; auto: the type of --dtype. float16 is stored as bfloat16.",
      {.needs = "enable-lora"});
  rows.List("lora-target-modules", "",
            "Modules that adapters may change, by the last part of their names (o_proj, down_proj; "
            "experts for the modules of all experts); memory is reserved only for these modules. "
            "Default: all modules, and experts if an adapter of --lora-modules changes them.",
            {.needs = "enable-lora"});
  rows.List("lora-modules-to-save", "",
            "Modules whose weights may be replaced by adapters that are loaded later "
            "(modules_to_save in peft), by the last part of their names (lm_head, embed_tokens). "
            "Memory for these weights is reserved for each adapter. Not needed for modules that "
            "adapters of --lora-modules replace, or for biases and norms. Only on a CPU.",
            {.needs = "enable-lora"});
  rows.Flag("allow-runtime-lora-updating",
            "Serve /v1/load_lora_adapter and /v1/unload_lora_adapter. With these routes, clients "
            "can make the server read folders of this machine.",
            {.commands = kServe, .environment = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"});
  rows.Text("lora-resolver-cache-dir", "",
            "Folder of adapters: a request for an unknown model loads the adapter from the "
            "subfolder with this name, if it exists. Needs --allow-runtime-lora-updating.",
            {.commands = kServe,
             .environment = "VLLM_LORA_RESOLVER_CACHE_DIR",
             .needs = "allow-runtime-lora-updating",
             .value = ValueKind::kFolder});
}

}  // namespace sluice::options
