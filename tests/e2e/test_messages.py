"""/v1/messages as Anthropic's clients use it. The model returns scripted answers: the first word of a message selects the script."""
import json

import pytest

from serving import DATA, serving

SCRIPTED = DATA / "agents" / "hermes"
ROWS = [json.loads(line) for line in (DATA / "agents" / "messages.jsonl").read_text().splitlines()]
KEY = "sk-bead-0001"
# Requests like Claude Code's: order of fields, blocks with cache marks, many tools, a query string, beta headers.
HEADERS = {"x-api-key": KEY, "anthropic-version": "2023-06-01", "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14",
           "x-app": "cli", "user-agent": "claude-cli/2.1.154 (external, cli)", "accept": "application/json"}
CACHED = {"cache_control": {"type": "ephemeral"}}


@pytest.fixture(scope="module")
def server():
    with serving(SCRIPTED, "--max-model-len", 4096, "--dtype", "float32", "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
                 "--api-key", KEY, program="vllm", name="abacus") as server:
        yield server


def meaning(answer):
    """The content of an answer, without ids."""
    error = answer.get("error")
    if error:
        return {key: error.get(key) for key in ("type", "param", "code")}
    blocks = [{k: v for k, v in block.items() if k != "id"} for block in answer.get("content", [])]
    return {**{k: v for k, v in answer.items() if k != "id"}, "content": blocks}


def ask(server, body, path="/v1/messages", headers=HEADERS):
    status, _, text = server.request("POST", path, body, headers=headers)
    return status, text


def events_of(text):
    """[(name, data)] of a stream's events."""
    blocks = [block.split("\n", 1) for block in text.decode().split("\n\n") if block]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_recorded_requests(server, row):
    body = row["raw_body"] if "raw_body" in row else json.dumps(row["body"], ensure_ascii=False).encode()
    status, text = ask(server, body, row["path"])
    assert status == row["status"], text
    assert meaning(json.loads(text)) == meaning(row["response"])


def claude_code(messages, **more):
    tools = [{"name": name, "description": "d", "input_schema": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
              "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}}
             for name in ("Bash", "Read", "get_weather", *("Tool%d" % i for i in range(6)))]
    return {"model": "abacus", "messages": messages,
            "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=%s;" % id(messages)},
                       {"type": "text", "text": "You are an agent.", **CACHED}],
            "tools": [*tools[:-1], {**tools[-1], **CACHED}], "metadata": {"user_id": "user_1_account__session_2"}, "max_tokens": 200,
            "thinking": {"type": "disabled"}, "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "temperature": 0, "stream": True, **more}


def test_a_turn_of_claude_code(server):
    asked = {"role": "user", "content": [{"type": "text", "text": "before I go", **CACHED}]}
    status, text = ask(server, claude_code([asked]), "/v1/messages?beta=true")
    assert status == 200, text
    events = events_of(text)
    assert all(name == data["type"] for name, data in events)
    names = [name for i, (name, _) in enumerate(events) if i == 0 or events[i - 1][0] != name]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert names == ["message_start", *block, *block, "message_delta", "message_stop"]
    starts = [data["content_block"] for name, data in events if name == "content_block_start"]
    deltas = [data["delta"] for name, data in events if name == "content_block_delta"]
    assert starts[0] == {"type": "text", "text": ""} and starts[1]["name"] == "get_weather" and starts[1]["input"] == {}
    assert "".join(d["text"] for d in deltas if d["type"] == "text_delta") == "I will look that up.\n"
    called = json.loads("".join(d["partial_json"] for d in deltas if d["type"] == "input_json_delta"))
    assert called == {"city": "Bergen", "unit": "celsius"}
    assert dict(events)["message_delta"]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    answer = {"role": "assistant", "content": [{"type": "text", "text": "I will look that up.\n"}, {**starts[1], "input": called}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": starts[1]["id"], "is_error": False, **CACHED,
                                           "content": [{"type": "text", "text": "7 degrees"}]}]}
    history = [asked, answer, result]
    status, text = ask(server, claude_code(history, stream=False))
    whole = json.loads(text)
    assert (status, whole["stop_reason"]) == (200, "end_turn"), text
    assert whole["content"] == [{"type": "text", "text": "It is 7 degrees in Oslo, and the sum is 12.5."}]
    # count_tokens returns the input tokens that the answer's usage reports. The value that changes with every
    # request does not count.
    counted = {k: v for k, v in claude_code(list(history)).items() if k in ("model", "messages", "system", "tools", "thinking")}
    status, text = ask(server, counted, "/v1/messages/count_tokens?beta=true")
    assert (status, json.loads(text)["input_tokens"]) == (200, whole["usage"]["input_tokens"]), text
    # A reminder after the result changes only the end of the prompt.
    status, text = ask(server, claude_code([*history, {"role": "system", "content": "Be brief."}], stream=False))
    assert status == 200 and json.loads(text)["usage"]["input_tokens"] > whole["usage"]["input_tokens"], text


def test_it_asks_for_a_title_without_tools(server):
    body = {"model": "abacus", "max_tokens": 40, "messages": [{"role": "user", "content": "plain"}], "tools": [], "temperature": 0,
            "system": [{"type": "text", "text": "Summarize."}], "metadata": {"user_id": "u"}}
    status, text = ask(server, body)
    assert status == 200 and json.loads(text)["content"][0]["type"] == "text", text


def test_keys(server):
    body = {"model": "abacus", "max_tokens": 4, "messages": [{"role": "user", "content": "plain"}]}
    json_type = {"Content-Type": "application/json"}
    for headers, status in (({}, 401), ({"x-api-key": "wrong"}, 401), ({"x-api-key": KEY}, 200), ({"Authorization": "Bearer " + KEY}, 200)):
        assert server.request("POST", "/v1/messages", body, only_headers={**json_type, **headers})[0] == status, headers
    # Requests that clients send before their first question.
    assert server.request("HEAD", "/")[0] < 500
    status, _, models = server.request("GET", "/v1/models?limit=1000", headers=HEADERS)
    models = json.loads(models)
    assert (status, models["has_more"], models["first_id"]) == (200, False, models["data"][0]["id"])
    assert models["data"][0]["type"] == "model" and models["data"][0]["created_at"].endswith("Z")
