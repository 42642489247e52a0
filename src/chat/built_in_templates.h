// Chat templates for models whose checkpoints describe their prompts by a program instead of a
// template. They are Jinja files in src/chat/templates, compiled in.
#pragma once

#include <string_view>

namespace sluice {

// The texts of the files. They render as the encoders of the models' repositories do, with the
// defaults of vLLM: DeepSeek V4 thinks unless told otherwise, DeepSeek V3.2 does not.
std::string_view DeepseekV32Template();
std::string_view DeepseekV4Template();

// Returns the template that a value of --tokenizer-mode names ("deepseek_v32"), or "" if it names
// none.
std::string_view BuiltInTemplate(std::string_view mode);

// Returns the value of --tokenizer-mode for an entry of "architectures" in config.json, or "".
std::string_view BuiltInTemplateOf(std::string_view architecture);

}  // namespace sluice
