#include "chat/built_in_templates.h"

namespace sluice {

std::string_view BuiltInTemplate(std::string_view mode) {
  if (mode == "deepseek_v32") return DeepseekV32Template();
  if (mode == "deepseek_v4") return DeepseekV4Template();
  return "";
}

std::string_view BuiltInTemplateOf(std::string_view architecture) {
  if (architecture == "DeepseekV32ForCausalLM") return "deepseek_v32";
  if (architecture == "DeepseekV4ForCausalLM") return "deepseek_v4";
  return "";
}

}  // namespace sluice
