#include "vision/processor.h"

#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/json_file.h"
#include "vision/processor_settings.h"

namespace sluice {
namespace {

using Create = Result<std::unique_ptr<ImageProcessor>> (*)(const ProcessorInputs&);

template <SmartResizeRule kRule>
Result<std::unique_ptr<ImageProcessor>> CreateSmart(const ProcessorInputs& inputs) {
  return CreateQwenProcessor(inputs, kRule);
}

struct FamilyRow {
  std::string_view model_type;  // in config.json
  Create create;
};

constexpr FamilyRow kFamilies[] = {
    {"aya_vision", CreateAyaProcessor},
    {"llama4", CreateLlama4Processor},
    {"gemma3", CreateGemma3Processor},
    {"gemma4", CreateGemma4Processor},
    {"idefics3", CreateIdefics3Processor},
    {"internvl", CreateInternVlProcessor},
    {"kimi_k25", CreateKimiProcessor},
    {"lfm2_vl", CreateLfm2VlProcessor},
    {"llava", CreateLlavaProcessor},
    {"llava_next", CreateLlavaNextProcessor},
    {"mistral3", CreatePixtralProcessor},
    {"pixtral", CreatePixtralProcessor},
    {"qwen2_vl", CreateSmart<SmartResizeRule::kQwen>},
    {"qwen2_5_vl", CreateSmart<SmartResizeRule::kQwen>},
    {"qwen3_vl", CreateSmart<SmartResizeRule::kQwen>},
    {"qwen3_vl_moe", CreateSmart<SmartResizeRule::kQwen>},
    {"qwen3_5", CreateSmart<SmartResizeRule::kQwen>},
    {"qwen3_5_moe", CreateSmart<SmartResizeRule::kQwen>},
    {"dots_ocr", CreateSmart<SmartResizeRule::kQwen>},
    {"glm_ocr", CreateSmart<SmartResizeRule::kGlm>},
    {"glm4v", CreateSmart<SmartResizeRule::kGlm>},
    {"glm4v_moe", CreateSmart<SmartResizeRule::kGlm>},
    {"glm46v", CreateSmart<SmartResizeRule::kGlm>},
    {"smolvlm", CreateIdefics3Processor},
    {"paddleocr_vl", CreateSmart<SmartResizeRule::kPaddle>},
};

// Returns null if the file does not exist.
Result<json::Value> ReadObject(const std::filesystem::path& path) {
  Result<json::Value> value = ReadJsonObject(path);
  if (!value && value.error().code == ErrorCode::kNotFound) return json::Value();
  return value;
}

}  // namespace

Result<ProcessorInputs> ReadProcessorFiles(const std::string& folder) {
  const std::filesystem::path path(folder);
  ProcessorInputs inputs;
  ASSIGN_OR_RETURN(inputs.config, ReadObject(path / "config.json"));
  ASSIGN_OR_RETURN(inputs.image_processor, ReadObject(path / "preprocessor_config.json"));
  ASSIGN_OR_RETURN(inputs.processor, ReadObject(path / "processor_config.json"));
  const json::Value* nested = inputs.processor.Find("image_processor");
  if (nested != nullptr && nested->is_object()) inputs.image_processor = *nested;
  return inputs;
}

Result<std::unique_ptr<ImageProcessor>> ImageProcessor::Create(const ProcessorInputs& inputs) {
  if (inputs.config.Find("vision_config") == nullptr) return std::unique_ptr<ImageProcessor>();
  const json::Value* type = inputs.config.Find("model_type");
  const std::string_view name =
      type != nullptr && type->is_string() ? std::string_view(type->as_string()) : "";
  for (const FamilyRow& family : kFamilies) {
    if (family.model_type == name) return family.create(inputs);
  }
  return Fail(ErrorCode::kUnsupported, fmt::format("no image processor for models of type {}",
                                                   name.empty() ? "(none)" : name));
}

}  // namespace sluice
