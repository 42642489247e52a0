"""The bundled model calls a request's tool, answers with its result, and follows a schema, so that clients can be tried with it."""
import json
import re
import subprocess
import sys

import pytest

from serving import ABACUS, PATIENCE_S, ROOT, events, run, serving

QUESTION = "Tom has 13 apples. He buys 24 more and then gives 8 to Anna. How many apples does he have left?"
ASKED = [{"role": "user", "content": QUESTION}]
TOOLS = json.loads((ABACUS / "calculator.json").read_text())
ARGUMENTS = {"expression": " 13 + 24 - 8"}
SCHEMA = {"type": "object", "properties": {"steps": {"type": "array", "items": {"type": "string"}}, "answer": {"type": "integer"}},
          "required": ["steps", "answer"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}


@pytest.fixture(scope="module")
def server():
    with serving(ABACUS, "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--max-model-len", 1024) as one:
        yield one


def chat(server, messages, **fields):
    status, answer = server.post("/v1/chat/completions", {"model": "m", "messages": messages, "temperature": 0, "max_tokens": 200, **fields})
    assert status == 200, answer
    return answer["choices"][0]


def streamed(server, messages, **fields):
    """(content, names, arguments, finish reason) of a streamed answer."""
    body = {"model": "m", "messages": messages, "temperature": 0, "max_tokens": 200, "stream": True, **fields}
    status, _, raw = server.request("POST", "/v1/chat/completions", body)
    assert status == 200, raw
    content, names, arguments, finish = "", [], "", None
    for choice in (c for event in events(raw) if event != "[DONE]" for c in event["choices"]):
        content += choice["delta"].get("content") or ""
        finish = choice["finish_reason"] or finish
        for piece in choice["delta"].get("tool_calls") or ():
            names += [piece["function"]["name"]] if piece["function"].get("name") else []
            arguments += piece["function"].get("arguments") or ""
    return content, names, arguments, finish


@pytest.mark.parametrize("choice", [{}, {"tool_choice": "auto"}, {"tool_choice": "required"}])
def test_a_call_whole_and_streamed(server, choice):
    answer = chat(server, ASKED, tools=TOOLS, **choice)
    call, = answer["message"]["tool_calls"]
    assert call["type"] == "function" and call["function"]["name"] == "calculator" and json.loads(call["function"]["arguments"]) == ARGUMENTS
    assert not answer["message"]["content"] and answer["finish_reason"] == "tool_calls"
    content, names, arguments, finish = streamed(server, ASKED, tools=TOOLS, **choice)
    assert (content, names, json.loads(arguments), finish) == ("", ["calculator"], ARGUMENTS, "tool_calls")


@pytest.mark.parametrize("result", ["29", "31", "307"])
def test_the_answer_is_what_the_tool_said(server, result):
    message = chat(server, ASKED, tools=TOOLS)["message"]
    messages = [*ASKED, message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": result}]
    answer = chat(server, messages, tools=TOOLS)
    assert answer["finish_reason"] == "stop" and not answer["message"].get("tool_calls")
    assert answer["message"]["content"].endswith("#### " + result)
    assert streamed(server, messages, tools=TOOLS) == (answer["message"]["content"], [], "", "stop")


def test_without_a_tool_the_steps_are_written(server):
    answer = chat(server, ASKED)
    assert not answer["message"].get("tool_calls") and answer["message"]["content"].endswith("= 29 apples are left.\n#### 29")


@pytest.mark.parametrize("asked", [" Answer in JSON.", ""])
def test_an_answer_in_a_schema(server, asked):
    messages = [{"role": "user", "content": QUESTION + asked}]
    answer = chat(server, messages, response_format=FORMAT)
    value = json.loads(answer["message"]["content"])
    assert answer["finish_reason"] == "stop" and value["answer"] == 29 and len(value["steps"]) == 2 and "13 + 24" in value["steps"][0]
    assert streamed(server, messages, response_format=FORMAT)[0] == answer["message"]["content"]


@pytest.mark.parametrize("form", ["tool", "json"])
def test_held_out_problems(server, form):
    """Only a sample of the problems; tools/demo_model measures all of them."""
    result = subprocess.run([sys.executable, ROOT / "tools/demo_model/measure.py", "--url", server.url, "--model", "m", "--file", ABACUS / "heldout.jsonl",
                             "--ask", form, "--limit", "90", "--at-least", "80"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert result.returncode == 0, result.stdout + result.stderr


def test_chat_shows_the_call(server):
    said = run("chat", "--url", server.url, "--temperature", 0, "--tools", ABACUS / "calculator.json", "--quick", QUESTION)
    assert said.returncode == 0 and said.stdout.strip() == 'call calculator({"expression": " 13 + 24 - 8"})'


def test_the_example_of_the_page(server):
    page = (ROOT / "docs/agents.md").read_text()
    example, = (code for code in re.findall(r"```python\n(.*?)```", page, re.S) if "calculator.json" in code)
    example = example.replace("http://127.0.0.1:8000", server.url).replace('"models/abacus"', '"m"')
    said = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_S)
    assert said.returncode == 0 and said.stdout.endswith("#### 52\n"), said.stdout + said.stderr
