#include "checkpoint/foreign_format.h"

#include <fstream>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/json_fields.h"
#include "base/json_file.h"
#include "base/list_folder.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGgufWayOut =
    "the GGUF format is not supported: give the folder of the safetensors checkpoint from which it "
    "was made; the model's page on the Hugging Face hub names it (quantized checkpoints are also "
    "supported: see docs/checkpoints.md)";
constexpr std::string_view kPickleWayOut =
    "pickled weights are not supported, because they can run code: use a revision of the model "
    "with safetensors (--revision refs/pr/N if the hub has converted it), or convert it with "
    "transformers: AutoModelForCausalLM.from_pretrained(IN).save_pretrained(OUT)";

tl::unexpected<Error> Refuse(const fs::path& model, std::string_view is, std::string_view way_out) {
  return Fail(ErrorCode::kUnsupported, fmt::format("{} {}: {}", model.string(), is, way_out),
              "model");
}

bool IsGguf(const fs::path& file) {
  if (file.extension() == ".gguf") return true;
  char magic[4] = {};
  std::ifstream(file, std::ios::binary).read(magic, sizeof magic);
  return std::string_view(magic, sizeof magic) == "GGUF";
}

bool IsPickle(const fs::path& file) {
  const fs::path end = file.extension();
  const std::string name = file.filename().string();
  if (end == ".bin") return name.starts_with("pytorch_model") || name.starts_with("model");
  return end == ".pth" || end == ".pt" || end == ".ckpt";
}

Status RefuseFile(const fs::path& file) {
  if (IsGguf(file)) return Refuse(file, "is a GGUF file", kGgufWayOut);
  if (IsPickle(file)) return Refuse(file, "is a file of pickled weights", kPickleWayOut);
  if (file.extension() == ".safetensors") {
    return Refuse(file, "is a file of weights",
                  fmt::format("give its folder, {}, with config.json and tokenizer.json",
                              file.has_parent_path() ? file.parent_path().string() : "."));
  }
  return {};
}

Status RefuseAdapter(const fs::path& folder) {
  std::string base;
  if (const auto config = ReadJsonObject(folder / "adapter_config.json")) {
    if (const auto name = JsonFields(*config, "").String("base_model_name_or_path"); name && *name)
      base = fmt::format(" of {}", ShortName(**name));
  }
  return Refuse(folder, fmt::format("holds a LoRA adapter{}, not a model", base),
                "serve its model with --enable-lora --lora-modules NAME=FOLDER; or merge it into "
                "its model and serve that, with peft: "
                "AutoPeftModelForCausalLM.from_pretrained(IN).merge_and_unload()"
                ".save_pretrained(OUT), and copy the tokenizer's files there");
}

}  // namespace

Status RefuseForeignFormat(const fs::path& model) {
  std::error_code error;
  if (fs::is_regular_file(model, error)) return RefuseFile(model);
  bool has_config = false, has_adapter = false, has_safetensors = false;
  std::optional<fs::path> gguf, pickle;
  for (const fs::path& path : ListFolder(model, error)) {
    const fs::path name = path.filename();
    has_config |= name == "config.json";
    has_adapter |= name == "adapter_config.json";
    has_safetensors |= name.extension() == ".safetensors" || name == "model.safetensors.index.json";
    if (name.extension() == ".gguf" && (!gguf || path < *gguf)) gguf = path;
    if (IsPickle(name) && (!pickle || path < *pickle)) pickle = path;
  }
  if (has_adapter && !has_config) return RefuseAdapter(model);
  if (has_safetensors) return {};
  if (gguf) {
    return Refuse(model, fmt::format("holds {} and no safetensors", gguf->filename().string()),
                  kGgufWayOut);
  }
  if (pickle) {
    return Refuse(model, fmt::format("holds {} and no safetensors", pickle->filename().string()),
                  kPickleWayOut);
  }
  return {};
}

}  // namespace sluice
