"""The chat templates: for a model that solves sums, and for a model that also calls a tool."""

CHAT_TEMPLATE = (
    "{{- bos_token }}"
    "{%- for message in messages %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"
)

# Calls are in hermes format. Without tools and calls the output equals CHAT_TEMPLATE's. Only the names of tools and of
# their arguments are written: descriptions would fill a whole row of the training text.
TOOLS_TEMPLATE = (
    "{{- bos_token }}"
    "{%- if tools %}"
    "{{- '<|start_header_id|>system<|end_header_id|>\\n\\n<tools>' }}"
    "{%- for tool in tools %}"
    "{%- set arguments = ((tool['function']['parameters'] or {})['properties'] or {}) | list %}"
    "{{- '\\n{\"name\": ' + tool['function']['name'] | tojson + ', \"arguments\": ' + arguments | tojson + '}' }}"
    "{%- endfor %}"
    "{{- '\\n</tools><|eot_id|>' }}"
    "{%- endif %}"
    "{%- for message in messages %}"
    "{%- if message['tool_calls'] %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}"
    "{%- if message['content'] %}{{- message['content'] | trim + '\\n' }}{%- endif %}"
    "{%- for call in message['tool_calls'] %}"
    "{%- if not loop.first %}{{- '\\n' }}{%- endif %}"
    "{{- '<tool_call>\\n{\"name\": ' + call['function']['name'] | tojson + ', \"arguments\": ' }}"
    "{{- call['function']['arguments'] if call['function']['arguments'] is string else call['function']['arguments'] | tojson }}"
    "{{- '}\\n</tool_call>' }}"
    "{%- endfor %}"
    "{{- '<|eot_id|>' }}"
    "{%- else %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"
)
