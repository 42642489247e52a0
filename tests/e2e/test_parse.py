"""`sluice parse`: extracts reasoning, content and tool calls from model output."""
import json

import serving

TEXT = 'Hm.\n<tool_call>{"name": "f", "arguments": {"a": "é"}}</tool_call>'


def parse(*words, lines):
    done = serving.run("parse", *words, input="".join(line + "\n" for line in lines))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_whole_and_stream_agree_and_bad_lines_are_answered():
    row = json.dumps({"text": TEXT, "chunks": [TEXT[:7], TEXT[7:50], "", TEXT[50:]], "ends": "stop"})
    good, broken, nothing = parse("--tool-parser", "hermes", lines=[row, '{"text": 1}', "", "no"])
    assert good["content"] == "Hm.\n" and good["reasoning"] is None
    assert [call["name"] for call in good["tool_calls"]] == ["f"] and json.loads(good["tool_calls"][0]["arguments"]) == {"a": "é"}
    assert len(good["deltas"]) == 4 and good["deltas"][2] is None
    calls = [call for delta in good["deltas"] for call in (delta or {}).get("tool_calls", [])]
    assert calls[0] == {"index": 0, "name": "f"}
    assert "".join(call.get("arguments", "") for call in calls) == good["tool_calls"][0]["arguments"]
    assert '"text"' in broken["error"]["message"] and nothing["error"]["message"]


def test_a_line_brings_tools_prompt_and_template_arguments():
    call = "<tool_call><function=f><parameter=a>\n1\n</parameter></function></tool_call>"
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "integer"}}}}}]
    rows = [{"text": "x</think>" + call, "chunks": [], "tools": tools},
            {"text": "y", "chunks": [], "chat_template_kwargs": {"enable_thinking": False}}]
    thought, plain = parse("--tool-parser", "qwen3_coder", "--reasoning-parser", "qwen3", lines=map(json.dumps, rows))
    assert thought["reasoning"] == "x" and thought["tool_calls"] == [{"name": "f", "arguments": '{"a": 1}'}]
    assert plain["reasoning"] is None and plain["content"] == "y"


def test_an_unknown_parser_lists_the_names():
    for flag, name in (("--tool-parser", "llama3_json"), ("--reasoning-parser", "deepseek_r1")):
        done = serving.run("parse", flag, "none_such", input="")
        assert done.returncode == 2 and "none_such" in done.stderr and name in done.stderr
