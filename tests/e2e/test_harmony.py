"""gpt-oss's channels in every API: reasoning, text before a call, calls, and the rest of the conversation. The model returns the answers of
scripts.json (tools/checkpoints/make_harmony.py)."""
import json

import pytest

from serving import DATA, events, serving

HARMONY = DATA / "agents" / "harmony"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}]
FLAT_TOOLS = [{"type": "function", "name": "get_weather", "parameters": PARAMETERS}]
# By first word of the message: reasoning, text, and the arguments of the call.
ANSWERS = {
    "plain": (None, "Forty-two is the answer.", None),
    "think": ("They greet me, so I greet them.", "Hello to you!", None),
    "call": ("The weather needs a call.", None, {"city": "Oslo"}),
    "tell": ("First some words.", "I look it up.", {"city": "Rome", "days": 2}),
    "twice": ("One thought.\nAnother one.", "Both are told.", None),
}
BEHIND_A_TOOL = ("Its tool has told that.", "It is 7 degrees in Oslo.", None)


@pytest.fixture(scope="module")
def server():
    with serving(HARMONY, "--enable-auto-tool-choice", "--tool-call-parser", "openai", "--reasoning-parser", "openai_gptoss",
                 env={"VLLM_ENABLE_RESPONSES_API_STORE": "1"}) as server:
        yield server


def chat(server, messages, **fields):
    status, answer = server.post("/v1/chat/completions", {"messages": messages, "tools": TOOLS, "temperature": 0, "max_tokens": 80, **fields})
    assert status == 200, answer
    return answer["choices"][0]


def said(message):
    calls = message.get("tool_calls") or []
    assert [call["function"]["name"] for call in calls] in ([], ["get_weather"])
    return message["reasoning"], message["content"], json.loads(calls[0]["function"]["arguments"]) if calls else None


@pytest.mark.parametrize("word", ANSWERS)
def test_a_chat(server, word):
    choice = chat(server, [{"role": "user", "content": word + " it"}])
    assert said(choice["message"]) == ANSWERS[word]
    assert choice["finish_reason"] == ("tool_calls" if ANSWERS[word][2] else "stop")


@pytest.mark.parametrize("word", ANSWERS)
def test_a_streamed_chat(server, word):
    fields = {"messages": [{"role": "user", "content": word + " it"}], "tools": TOOLS, "temperature": 0, "max_tokens": 80, "stream": True}
    status, _, raw = server.request("POST", "/v1/chat/completions", fields)
    assert status == 200, raw
    reasoning, content, arguments, order = "", "", "", []
    for event in events(raw):
        for choice in event["choices"] if event != "[DONE]" else ():
            delta = choice["delta"]
            for key in ("reasoning", "content", "tool_calls"):
                if delta.get(key) and order[-1:] != [key]:
                    order.append(key)
            reasoning += delta.get("reasoning") or ""
            content += delta.get("content") or ""
            arguments += "".join(call["function"].get("arguments") or "" for call in delta.get("tool_calls") or ())
    assert (reasoning or None, content or None, json.loads(arguments) if arguments else None) == ANSWERS[word]
    assert order == [key for key, part in zip(("reasoning", "content", "tool_calls"), ANSWERS[word]) if part]


def test_a_chat_goes_on_behind_a_call(server):
    messages = [{"role": "user", "content": "call it"}]
    message = chat(server, messages)["message"]
    messages += [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "7 degrees"}]
    assert said(chat(server, messages)["message"]) == BEHIND_A_TOOL
    # The template receives the reasoning in its own field, and the call.
    status, answer = server.post("/tokenize", {"messages": messages, "tools": TOOLS})
    assert status == 200, answer
    status, text = server.post("/detokenize", {"tokens": answer["tokens"]})
    assert status == 200, text
    assert "<|start|>assistant<|channel|>analysis<|message|>The weather needs a call.<|end|>" in text["prompt"]
    assert '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Oslo"}<|call|>' in text["prompt"]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_call_that_has_to_be_made(server, choice):
    reasoning, content, arguments = said(chat(server, [{"role": "user", "content": "call it"}], tool_choice=choice)["message"])
    assert arguments == {"city": "Oslo"} and not content


def test_thoughts_that_nobody_wants(server):
    message = chat(server, [{"role": "user", "content": "think it"}], include_reasoning=False)["message"]
    assert message["content"] == "Hello to you!" and not message.get("reasoning")


def items(output):
    """The content of a response's items, in order."""
    found = []
    for item in output:
        if item["type"] == "reasoning":
            found.append(("reasoning", item["content"][0]["text"]))
        elif item["type"] == "function_call":
            found.append(("function_call", item["name"], json.loads(item["arguments"])))
        else:
            found.append(("message", item["content"][0]["text"]))
    return found


def expected_items(answer):
    reasoning, content, arguments = answer
    # Each message that the model wrote is a separate item.
    found = [("reasoning", thought) for thought in (reasoning or "").split("\n") if thought]
    found += [("message", content)] if content else []
    return found + ([("function_call", "get_weather", arguments)] if arguments else [])


@pytest.mark.parametrize("word", ANSWERS)
def test_a_response(server, word):
    fields = {"input": word + " it", "tools": FLAT_TOOLS, "temperature": 0, "max_output_tokens": 80}
    status, answer = server.post("/v1/responses", fields)
    assert status == 200 and answer["status"] == "completed", answer
    assert items(answer["output"]) == expected_items(ANSWERS[word])
    status, _, raw = server.request("POST", "/v1/responses", {**fields, "stream": True})
    assert status == 200, raw
    streamed = [json.loads(line.removeprefix("data: ")) for line in raw.decode().split("\n") if line.startswith("data: {")]
    assert [event["sequence_number"] for event in streamed] == list(range(len(streamed)))
    assert items([event["item"] for event in streamed if event["type"] == "response.output_item.done"]) == expected_items(ANSWERS[word])
    assert items(streamed[-1]["response"]["output"]) == expected_items(ANSWERS[word])


@pytest.mark.parametrize("by_id", [True, False])
def test_a_response_goes_on_behind_a_call(server, by_id):
    asked = {"role": "user", "content": "call it"}
    status, first = server.post("/v1/responses", {"input": [asked], "tools": FLAT_TOOLS, "temperature": 0, "max_output_tokens": 80})
    assert status == 200, first
    call = first["output"][-1]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "7 degrees"}
    fields = {"input": [result], "previous_response_id": first["id"]} if by_id else {"input": [asked, *first["output"], result]}
    status, answer = server.post("/v1/responses", {**fields, "tools": FLAT_TOOLS, "temperature": 0, "max_output_tokens": 80})
    assert status == 200, answer
    assert items(answer["output"]) == expected_items(BEHIND_A_TOOL)


def test_messages(server):
    tools = [{"name": "get_weather", "input_schema": PARAMETERS}]
    messages = [{"role": "user", "content": "tell it"}]
    status, answer = server.post("/v1/messages", {"model": "m", "messages": messages, "tools": tools, "max_tokens": 80, "temperature": 0})
    assert status == 200 and answer["stop_reason"] == "tool_use", answer
    kinds = [block["type"] for block in answer["content"]]
    assert kinds == ["thinking", "text", "tool_use"], answer
    assert answer["content"][2]["input"] == {"city": "Rome", "days": 2}
    messages += [{"role": "assistant", "content": answer["content"]},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": answer["content"][2]["id"], "content": "7 degrees"}]}]
    status, answer = server.post("/v1/messages", {"model": "m", "messages": messages, "tools": tools, "max_tokens": 80, "temperature": 0})
    assert status == 200, answer
    assert [block.get("text") or block.get("thinking") for block in answer["content"]] == list(BEHIND_A_TOOL[:2])


def test_the_parser_that_the_template_asks_for():
    with serving(HARMONY, "--enable-auto-tool-choice", "--tool-call-parser", "auto", "--reasoning-parser", "openai_gptoss") as server:
        assert said(chat(server, [{"role": "user", "content": "call it"}])["message"]) == ANSWERS["call"]
