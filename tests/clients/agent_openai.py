"""Prints what the openai SDK receives for tools, schemas and streams, as a JSON object on stdout. Run by run_clients.py."""
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


def respond(given, **more):
    return client.responses.create(model=model, temperature=0, input=given, **more)


def calls_in(response):
    return [item for item in response.output if item.type == "function_call"]


function = {"type": "function", **TOOL["function"]}
called = respond(ASK_CALL, tools=[function])
call = calls_in(called)[0]
continued = respond([{"type": "function_call_output", "call_id": call.call_id, "output": RESULT}], tools=[function],
                    previous_response_id=called.id)
with client.responses.stream(model=model, temperature=0, input=ASK_CALL, tools=[function]) as stream:
    events = [event.type for event in stream]
    streamed_call = calls_in(stream.get_final_response())[0]
with client.responses.stream(model=model, temperature=0, input=ASK_TEXT) as stream:
    said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
fetched = client.responses.retrieve(called.id)
listed = list(client.responses.input_items.list(called.id))
client.responses.delete(called.id)
try:
    client.responses.retrieve(called.id)
    found = "still there"
except openai.NotFoundError:
    found = "NotFoundError"
print(json.dumps({
    "more": {
        "response, text": respond(ASK_TEXT).output_text,
        "response, streamed text": said,
        "response, call": [call.name, json.loads(call.arguments)],
        "response, streamed call": [streamed_call.name, json.loads(streamed_call.arguments)],
        "response, last event": events[-1],
        "response, answer": continued.output_text,
        "response, schema": client.responses.parse(model=model, temperature=0, input=ASK_JSON, text_format=Verdict).output_parsed.model_dump(),
        "response, fetched": fetched.output == called.output,
        "response, input items": [item.content[0].text for item in listed],
        "response, deleted": found},
    "text": chat({"role": "user", "content": ASK_TEXT}).choices[0].message.content,
    "streamed text": "".join(filter(None, pieces)),
    "call": call_of(message.tool_calls[0]),
    "streamed call": call_of(streamed.tool_calls[0]),
    "answer": chat(asked, message, result, tools=[TOOL]).choices[0].message.content,
    "schema": parsed.choices[0].message.parsed.model_dump(),
}))
