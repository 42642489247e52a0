#include "options/rows.h"

namespace sluice::options {

void AddAdapterRows(std::vector<Option>& table) {
  Rows rows(table, "LoRA adapters", kEngineArguments);
  rows.Flag("enable-lora",
            "Serve LoRA adapters beside the model; a request asks for one by its \"model\".");
  rows.List("lora-modules", "",
            "Adapters to start with: name=folder, or {\"name\": ..., \"path\": ..., "
            "\"base_model_name\": ...}. A folder is as peft writes it.");
  rows.Integer("max-loras", "1",
               "Adapters in a step, which may have all that are in memory: there is room for the "
               "most of this, --max-cpu-loras and the number of --lora-modules; on a device for so "
               "many where --max-cpu-loras is given.",
               {.range = {1, 4096}, .needs = "enable-lora"});
  rows.Integer("max-cpu-loras", "",
               "Adapters in memory at a time; others are read again when a request asks for them. "
               "Default: --max-loras, or as many as --lora-modules. On a device there is room for "
               "--max-loras, and all others are read again.",
               {.range = {1, 4096}, .needs = "enable-lora"});
  rows.Choice("max-lora-rank", "16", "1|8|16|32|64|128|256|320|512",
              "Largest rank of an adapter; memory is taken for it.", {.needs = "enable-lora"});
  rows.Choice(
      "lora-dtype", "auto", "auto|bfloat16|float16",
      "Data type of adapters in memory; auto: that of --dtype. float16 is held as bfloat16.",
      {.needs = "enable-lora"});
  rows.List(
      "lora-target-modules", "",
      "Last parts of names of modules (o_proj, down_proj, and experts for those of all) that "
      "adapters may change; memory is taken for those alone. Default: all, and experts where an "
      "adapter of --lora-modules changes some.",
      {.needs = "enable-lora"});
  rows.List(
      "lora-modules-to-save", "",
      "Last parts of names of modules (lm_head, embed_tokens) whose weights adapters that are "
      "loaded later may replace, as peft's modules_to_save; each adapter in memory gets room "
      "for them. Those that adapters of --lora-modules replace are known without it; biases "
      "and norms need no room of their own. On a CPU.",
      {.needs = "enable-lora"});
  rows.Flag("allow-runtime-lora-updating",
            "Serve /v1/load_lora_adapter and /v1/unload_lora_adapter, which let clients make the "
            "server read folders of this machine.",
            {.commands = kServe, .environment = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"});
  rows.Text("lora-resolver-cache-dir", "",
            "Folder of adapters: a request for a model that is not known gets the adapter in the "
            "folder of that name, if there is one. With --allow-runtime-lora-updating.",
            {.commands = kServe,
             .environment = "VLLM_LORA_RESOLVER_CACHE_DIR",
             .needs = "allow-runtime-lora-updating",
             .value = ValueKind::kFolder});
}

}  // namespace sluice::options
