"""Prints what the anthropic SDK receives from /v1/messages, as a JSON object on stdout. Run by run_clients.py."""
import json
import sys

import anthropic
from agent_case import ASK_CALL, ASK_JSON, ASK_TEXT, PARAMETERS, RESULT, Verdict

base_url, model = sys.argv[1:]
client = anthropic.Anthropic(base_url=base_url.removesuffix("/v1"), api_key="EMPTY", max_retries=0)
TOOL = {"name": "get_weather", "description": "The weather of a city.", "input_schema": PARAMETERS,
        "cache_control": {"type": "ephemeral"}}
asked = {"role": "user", "content": ASK_CALL}
plain = {"model": model, "max_tokens": 60, "messages": [{"role": "user", "content": ASK_TEXT}], "extra_body": {"temperature": 0}}
calling = {**plain, "messages": [asked], "tools": [TOOL]}


def call_of(message):
    block = next(block for block in message.content if block.type == "tool_use")
    return [block.name, block.input]


def error_of(call):
    try:
        call()
    except Exception as problem:  # the test checks its type
        return type(problem).__name__


whole = client.messages.create(**plain)
with client.messages.stream(**plain, system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]) as stream:
    pieces = list(stream.text_stream)
    streamed = stream.get_final_message()
message = client.messages.create(**calling)
with client.messages.stream(**calling) as stream:
    streamed_call = stream.get_final_message()
result = {"type": "tool_result", "tool_use_id": message.content[0].id, "content": [{"type": "text", "text": RESULT}]}
history = [asked, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
output_format = {"type": "json_schema", "schema": anthropic.transform_schema(Verdict)}
schema = client.messages.create(**{**plain, "messages": [{"role": "user", "content": ASK_JSON}]}, output_config={"format": output_format})
counted = client.messages.count_tokens(model=model, messages=plain["messages"]).input_tokens
print(json.dumps({
    "text": whole.content[0].text,
    "streamed text": "".join(pieces),
    "call": call_of(message),
    "streamed call": call_of(streamed_call),
    "answer": client.messages.create(**{**calling, "messages": history}).content[0].text,
    "schema": json.loads(schema.content[0].text),
    "more": {
        "stop reasons": [whole.stop_reason, streamed.stop_reason, message.stop_reason, streamed_call.stop_reason],
        "counted as it was read": counted == whole.usage.input_tokens > 0,
        "stop sequence": client.messages.create(**plain, stop_sequences=["tool"]).stop_sequence,
        "unknown model": error_of(lambda: client.messages.create(**{**plain, "model": "no-such-model"})),
        "unknown model, streamed": error_of(lambda: client.messages.stream(**{**plain, "model": "no-such-model"}).__enter__()),
        "wrong value": error_of(lambda: client.messages.create(**{**plain, "extra_body": {"temperature": 3}})),
    },
}))
