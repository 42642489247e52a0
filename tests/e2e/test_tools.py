"""Calls of tools that an answer has to make: whatever the model, they come out as asked, whole and streamed."""
import json

import pytest

from serving import ABACUS, events, serving

CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": CITY, "strict": True}} for name in ("weather", "book")]
NAMED = {"type": "function", "function": {"name": "book"}}


@pytest.fixture(scope="module", params=["hermes", "llama3_json", "qwen3_coder", "deepseek_v3", "deepseek_v31", "deepseek_v32", "kimi_k2", "glm45", "minimax_m2",
                                        "pythonic"])
def caller(request):
    flags = ("--enable-auto-tool-choice", "--tool-call-parser", request.param, "--max-model-len", 1024)
    with serving(ABACUS, *flags) as server:
        yield server


def body(**fields):
    return {"model": "m", "messages": [{"role": "user", "content": "Tom has 3 apples."}], "tools": TOOLS, "max_tokens": 300, "temperature": 0,
            "frequency_penalty": 1, "parallel_tool_calls": False, **fields}


def is_call(call, names):
    arguments = json.loads(call["function"]["arguments"])
    return (call["function"]["name"] in names and list(arguments) == ["city", "days"] and arguments["city"] in ("Oslo", "Rome")
            and 1 <= arguments["days"] <= 9)


def streamed(server, fields):
    """What a stream says, as the choice of a whole answer would."""
    status, _, raw = server.request("POST", "/v1/chat/completions", {**fields, "stream": True})
    assert status == 200, raw
    calls, content, finish = [], "", None
    for event in events(raw):
        for choice in event["choices"] if event != "[DONE]" else ():
            content += choice["delta"].get("content") or ""
            finish = choice["finish_reason"] or finish
            for piece in choice["delta"].get("tool_calls") or ():
                if piece["index"] == len(calls):
                    calls.append({"id": piece["id"], "type": piece["type"], "function": {"name": piece["function"]["name"], "arguments": ""}})
                calls[piece["index"]]["function"]["arguments"] += piece["function"].get("arguments") or ""
    return calls, content, finish


@pytest.mark.parametrize("choice, names, finish", [("required", ("weather", "book"), "tool_calls"), (NAMED, ("book",), "stop")])
def test_calls_that_have_to_be_made(caller, choice, names, finish):
    fields = body(tool_choice=choice)
    status, answer = caller.post("/v1/chat/completions", fields)
    assert status == 200, answer
    only, = answer["choices"]
    call, = only["message"]["tool_calls"]
    assert is_call(call, names) and only["message"]["content"] == "" and only["finish_reason"] == finish
    (piece,), content, end = streamed(caller, fields)
    assert piece["function"] == call["function"] and not content and end == finish and piece["id"] != ""


def test_what_is_wrong_is_refused(caller):
    wrong = [{"type": "function", "function": {"name": "f", "parameters": {"type": "strng"}, "strict": True}}]
    for fields, param, words in [({"tools": []}, "tools", "empty"), ({"tools": None, "tool_choice": "required"}, "tool_choice", "tools"),
                                 ({"tool_choice": {"type": "function", "function": {"name": "nope"}}}, "tool_choice", "match"),
                                 ({"tool_choice": "required", "tools": wrong}, None, "tools.0.function.parameters")]:
        status, answer = caller.post("/v1/chat/completions", body(**fields))
        assert (status, answer["error"]["param"]) == (400, param) and words in answer["error"]["message"], answer
