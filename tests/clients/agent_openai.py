"""What the openai SDK gets of tools, schemas and streams: one JSON object on stdout. Run by run_clients.py."""
import json
import sys

import openai
from agent_case import ASK_CALL, ASK_JSON, ASK_TEXT, RESULT, TOOL, Verdict

base_url, model = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key="EMPTY", max_retries=0)


def chat(*messages, **more):
    return client.chat.completions.create(model=model, temperature=0, messages=list(messages), **more)


def call_of(call):
    return [call.function.name, json.loads(call.function.arguments)]


asked = {"role": "user", "content": ASK_CALL}
message = chat(asked, tools=[TOOL]).choices[0].message
result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": RESULT}
with client.chat.completions.stream(model=model, temperature=0, messages=[asked], tools=[TOOL]) as stream:
    streamed = stream.get_final_completion().choices[0].message
pieces = [c.choices[0].delta.content for c in chat({"role": "user", "content": ASK_TEXT}, stream=True) if c.choices]
parsed = client.chat.completions.parse(model=model, temperature=0, messages=[{"role": "user", "content": ASK_JSON}],
                                       response_format=Verdict)
print(json.dumps({
    "text": chat({"role": "user", "content": ASK_TEXT}).choices[0].message.content,
    "streamed text": "".join(filter(None, pieces)),
    "call": call_of(message.tool_calls[0]),
    "streamed call": call_of(streamed.tool_calls[0]),
    "answer": chat(asked, message, result, tools=[TOOL]).choices[0].message.content,
    "schema": parsed.choices[0].message.parsed.model_dump(),
}))
