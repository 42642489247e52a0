#include "tokenizer/tekken_template.h"

#include <array>
#include <charconv>

#include <fmt/format.h>

namespace sluice {
namespace {

// The template's text after the definitions of `version` and `default_effort`. Each line contains
// one rule.
constexpr const char* kRules = R"jinja(
{%- macro text(content) %}
{%- if content is string %}{{ content }}
{%- elif content %}
{%- for part in content %}
{%- if part is string %}{{ part }}
{%- elif part.type == 'text' %}{{ part.text }}
{%- elif part.type == 'thinking' and version >= 13 %}
{{- '[THINK]' }}{{ text(part.thinking) }}{{ '[/THINK]' }}
{%- else %}{{ raise_exception('Only text is rendered here, found a part of type ' + part.type|string) }}
{%- endif %}
{%- endfor %}
{%- endif %}
{%- endmacro %}
{%- set found = namespace(first=-1, last=-1, system='') %}
{%- for message in messages %}
{%- if message.role == 'user' %}
{%- if found.first < 0 %}{% set found.first = loop.index0 %}{% endif %}
{%- set found.last = loop.index0 %}
{%- elif message.role == 'system' and version < 7 %}
{%- set found.system = (found.system + '\n\n' if found.system else '') + text(message.content) %}
{%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'user' %}
{%- set holds_tools = loop.index0 == (found.first if version >= 13 else found.last) %}
{%- if tools and holds_tools %}
{{- '[AVAILABLE_TOOLS]' }}{{ tools|tojson }}{{ '[/AVAILABLE_TOOLS]' }}
{%- endif %}
{%- set effort = reasoning_effort if reasoning_effort is defined and reasoning_effort else default_effort %}
{%- if version >= 15 and holds_tools and effort %}
{{- '[MODEL_SETTINGS]' }}{{ {'reasoning_effort': effort}|tojson }}{{ '[/MODEL_SETTINGS]' }}
{%- endif %}
{{- '[INST]' }}
{%- if found.system and loop.index0 == found.last %}{{ found.system + '\n\n' }}{% endif %}
{{- text(message.content) }}{{ '[/INST]' }}
{%- elif message.role == 'system' or message.role == 'developer' %}
{%- if version >= 7 %}{{ '[SYSTEM_PROMPT]' }}{{ text(message.content) }}{{ '[/SYSTEM_PROMPT]' }}{% endif %}
{%- elif message.role == 'assistant' %}
{%- if message.reasoning_content is defined and message.reasoning_content and version >= 13 %}
{{- '[THINK]' }}{{ message.reasoning_content }}{{ '[/THINK]' }}
{%- endif %}
{{- text(message.content).rstrip(' ') }}
{%- if message.tool_calls is defined and message.tool_calls %}
{%- if version < 11 %}
{{- '[TOOL_CALLS][' }}
{%- for call in message.tool_calls %}
{%- set arguments = call.function.arguments %}
{{- '{"name": ' }}{{ call.function.name|tojson }}{{ ', "arguments": ' }}
{{- arguments if arguments is string else arguments|tojson }}
{%- if call.id is defined and call.id %}{{ ', "id": ' }}{{ call.id|tojson }}{% endif %}
{{- '}' }}{{ '' if loop.last else ', ' }}
{%- endfor %}
{{- ']' }}
{%- else %}
{%- for call in message.tool_calls %}
{%- set arguments = call.function.arguments %}
{{- '[TOOL_CALLS]' }}{{ call.function.name }}
{%- if version < 13 and call.id is defined and call.id %}{{ '[CALL_ID]' }}{{ call.id }}{% endif %}
{{- '[ARGS]' }}{{ arguments if arguments is string else arguments|tojson }}
{%- endfor %}
{%- endif %}
{%- endif %}
{{- eos_token }}
{%- elif message.role == 'tool' %}
{%- if version < 7 %}
{{- '[TOOL_RESULTS]{"content": ' }}{{ text(message.content)|string|tojson }}
{{- ', "call_id": ' }}{{ message.tool_call_id|tojson }}{{ '}[/TOOL_RESULTS]' }}
{%- elif version < 13 %}
{{- '[TOOL_RESULTS]' }}{{ message.tool_call_id }}{{ '[TOOL_CONTENT]' }}{{ text(message.content) }}{{ '[/TOOL_RESULTS]' }}
{%- else %}
{{- '[TOOL_RESULTS]' }}{{ text(message.content) }}{{ '[/TOOL_RESULTS]' }}
{%- endif %}
{%- else %}
{{- raise_exception('Roles are system, user, assistant and tool, found ' + message.role|string) }}
{%- endif %}
{%- endfor %}
)jinja";

}  // namespace

std::string TekkenTemplate(const std::string& version, const std::string& default_effort) {
  constexpr std::array<int, 5> kKnown = {3, 7, 11, 13, 15};
  int number = 0;
  if (!version.starts_with('v')) return "";
  std::from_chars(version.data() + 1, version.data() + version.size(), number);
  for (const int known : kKnown) {
    if (version != fmt::format("v{}", known)) continue;
    return fmt::format("{{%- set version = {} %}}{{%- set default_effort = '{}' %}}{}", number,
                       default_effort, kRules);
  }
  return "";
}

}  // namespace sluice
