"""Required tool calls: with every model, answers contain them in the requested format, whole and streamed."""
import json

import pytest

from serving import ABACUS, ROOT, events, serving

CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": CITY, "strict": True}} for name in ("weather", "book")]
NAMED = {"type": "function", "function": {"name": "book"}}


@pytest.fixture(scope="module", params=["hermes", "llama3_json", "qwen3_coder", "deepseek_v3", "deepseek_v31", "deepseek_v32", "kimi_k2", "glm45", "minimax_m2", "mistral",
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
    """A stream's content as the choice of a whole answer."""
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


def test_every_choice_has_a_grammar(caller):
    loose = [{"type": "function", "function": {"name": "f", "parameters": CITY}}, {"type": "function", "function": {"name": "g"}}]
    for tools in (TOOLS, loose):
        for choice in ("auto", "required", {"type": "function", "function": {"name": tools[1]["function"]["name"]}}):
            for parallel in (True, False):
                status, answer = caller.post("/v1/chat/completions", body(tools=tools, tool_choice=choice, parallel_tool_calls=parallel, max_tokens=8))
                assert status == 200, (choice, answer)


def test_what_is_wrong_is_refused(caller):
    wrong = [{"type": "function", "function": {"name": "f", "parameters": {"type": "strng"}, "strict": True}}]
    for fields, param, words in [({"tools": []}, "tools", "empty"), ({"tools": None, "tool_choice": "required"}, "tool_choice", "tools"),
                                 ({"tool_choice": {"type": "function", "function": {"name": "nope"}}}, "tool_choice", "match"),
                                 ({"tool_choice": "required", "tools": wrong}, None, "tools.0.function.parameters")]:
        status, answer = caller.post("/v1/chat/completions", body(**fields))
        assert (status, answer["error"]["param"]) == (400, param) and words in answer["error"]["message"], answer


def test_a_thought_whole_and_streamed():
    with serving(ABACUS, "--max-model-len", 512, "--reasoning-parser", "deepseek_r1") as server:
        fields = {"model": "m", "messages": [{"role": "user", "content": "Tom has 3 apples."}], "max_tokens": 20, "temperature": 0}
        status, answer = server.post("/v1/chat/completions", fields)
        message = answer["choices"][0]["message"]
        assert status == 200 and message["content"] is None and message["reasoning"] and message["reasoning"] == message["reasoning_content"]
        assert 0 < answer["usage"]["completion_tokens_details"]["reasoning_tokens"] <= answer["usage"]["completion_tokens"]
        _, _, raw = server.request("POST", "/v1/chat/completions", {**fields, "stream": True})
        deltas = [choice["delta"] for event in events(raw) if event != "[DONE]" for choice in event["choices"]]
        assert "".join(delta.get("reasoning") or "" for delta in deltas) == message["reasoning"]
        assert not any(delta.get("content") for delta in deltas)
        status, hidden = server.post("/v1/chat/completions", {**fields, "include_reasoning": False})
        assert status == 200 and not hidden["choices"][0]["message"]["reasoning"]
        # The prompt leaves no reasoning block open, so a constraint applies from the first token.
        status, held = server.post("/v1/chat/completions", {**fields, "structured_outputs": {"choice": ["yes"]}})
        assert held["choices"][0]["message"]["content"] == "yes" and not held["choices"][0]["message"]["reasoning"]
    with serving(ABACUS, "--max-model-len", 512, "--reasoning-parser", "deepseek_r1", "--structured-outputs-config", '{"enable_in_reasoning": true}') as server:
        status, held = server.post("/v1/chat/completions", {**fields, "structured_outputs": {"choice": ["yes"]}})
        assert held["choices"][0]["message"]["content"] == "yes" and not held["choices"][0]["message"]["reasoning"]


def test_a_function_of_a_namespace(caller):
    """The model gets namespace and function as a single name; the client gets the two parts."""
    tools = [{"type": "namespace", "name": "mcp__trips", "tools": [{"type": "function", **TOOLS[1]["function"]}]}]
    fields = {"model": "m", "input": "Tom has 3 apples.", "tools": tools, "tool_choice": "required", "max_output_tokens": 300, "temperature": 0,
              "frequency_penalty": 1, "parallel_tool_calls": False}
    status, answer = caller.post("/v1/responses", fields)
    assert status == 200, answer
    call, = [item for item in answer["output"] if item["type"] == "function_call"]
    assert (call["namespace"], call["name"]) == ("mcp__trips", "book") and list(json.loads(call["arguments"])) == ["city", "days"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "booked"}
    status, answer = caller.post("/v1/responses", {**fields, "previous_response_id": answer["id"], "input": [result], "tool_choice": "none"})
    assert status == 200, answer


@pytest.fixture(scope="module")
def shown():
    with serving(ABACUS, "--max-model-len", 1024, "--enable-auto-tool-choice", "--tool-call-parser", "auto") as server:
        yield server


def test_the_bundled_models_template_names_tools_and_calls(shown):
    def prompt(messages, **fields):
        status, answer = shown.post("/tokenize", {"model": "m", "messages": messages, **fields})
        assert status == 200, answer
        return shown.post("/detokenize", {"model": "m", "tokens": answer["tokens"]})[1]["prompt"]

    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    asked = [{"role": "user", "content": "Hi "}]
    turn = "<|start_header_id|>%s<|end_header_id|>\n\n%s<|eot_id|>"
    start = "<|start_header_id|>assistant<|end_header_id|>\n\n"
    user = turn % ("user", "Hi")
    assert prompt(asked) == "<|begin_of_text|>" + user + start
    loose = {"type": "function", "function": {"name": "now"}}
    tools = turn % ("system", '<tools>\n{"name": "weather", "arguments": ["city", "days"]}\n{"name": "now", "arguments": []}\n</tools>')
    assert prompt(asked, tools=[TOOLS[0], loose]) == "<|begin_of_text|>" + tools + user + start
    calls = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    history = [*asked, {"role": "assistant", "content": None, "tool_calls": [call, call]}, {"role": "tool", "tool_call_id": "c", "content": "7"}]
    assert prompt(history) == "<|begin_of_text|>" + user + turn % ("assistant", calls + "\n" + calls) + turn % ("tool", "7") + start


def test_what_a_call_of_the_calculator_is_worth(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools/demo_model")
    from measure import value_of
    for expression, value in [(" 13 + 24 - 8", "29"), ("(1 + 2) * 3", "9"), ("7 / 2", "3.5"), ("8 / 2", "4"), ("2 ** 9", None), ("a", None), ("1 / 0", None),
                              ("1 +", None), ("__import__('os')", None), (29, None)]:
        assert value_of(expression) == value, expression
