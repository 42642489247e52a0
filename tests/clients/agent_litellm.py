"""Prints what litellm receives for tools, schemas and streams, as a JSON object on stdout. Run by run_clients.py."""
import json
import sys

import litellm
from agent_case import ASK_CALL, ASK_JSON, ASK_TEXT, RESULT, TOOL, Verdict

base_url, model = sys.argv[1:]


def chat(*messages, **more):
    return litellm.completion(model="hosted_vllm/" + model, messages=list(messages), api_base=base_url, api_key="EMPTY", temperature=0,
                              num_retries=0, **more)


def call_of(message):
    return [message.tool_calls[0].function.name, json.loads(message.tool_calls[0].function.arguments)]


plain, asked = {"role": "user", "content": ASK_TEXT}, {"role": "user", "content": ASK_CALL}
message = chat(asked, tools=[TOOL]).choices[0].message
result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": RESULT}
streamed = litellm.stream_chunk_builder(list(chat(asked, tools=[TOOL], stream=True)))
schema = chat({"role": "user", "content": ASK_JSON}, response_format=Verdict)
print(json.dumps({
    "text": chat(plain).choices[0].message.content,
    "streamed text": "".join(chunk.choices[0].delta.content or "" for chunk in chat(plain, stream=True)),
    "call": call_of(message),
    "streamed call": call_of(streamed.choices[0].message),
    "answer": chat(asked, message, result, tools=[TOOL]).choices[0].message.content,
    "schema": json.loads(schema.choices[0].message.content),
}))
