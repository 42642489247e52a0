// Fuzz target: renders arbitrary bytes as a template, with small limits.
#include <cstddef>
#include <cstdint>
#include <string>

#include "chat/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const auto compiled =
      ChatTemplate::Compile(std::string(reinterpret_cast<const char*>(data), size));
  if (!compiled) return 0;
  RenderOptions options;
  options.limits.max_steps = 20'000;
  options.limits.max_memory_bytes = size_t{4} << 20;
  options.limits.max_output_bytes = size_t{1} << 20;
  options.limits.max_depth = 200;
  static const json::Value variables =
      json::Parse(
          R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": null,
          "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": [1, 2.5, true]}}}]}],
          "tools": null, "add_generation_prompt": true, "bos_token": "<s>", "n": 7, "text": "h\u00e9 \u65e5"})")
          .value();
  (void)compiled->Render(variables, options);
  return 0;
}
