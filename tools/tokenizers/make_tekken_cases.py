#!/usr/bin/env python3
"""Records the tokens of mistral-common for texts and conversations, with the tekken.json of tests/data/checkpoints/tiny-mistral-own.

    make_tekken_cases.py tests/data/checkpoints/tiny-mistral-own/tekken.json tests/data/tokenizers/tekken.json

Needs mistral-common. Conversations are rendered by every version of its renderer.
"""
import json
import pathlib
import random
import sys
import tempfile

from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Tells the \"weather\" <there>",
                                           "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}}]
CALL = {"id": "abc123def", "type": "function", "function": {"name": "weather", "arguments": json.dumps({"place": "Köln", "n": [1, 2.5]})}}
SECOND = {"id": "def456abc", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
USER = {"role": "user", "content": "the weather?\n"}
CONVERSATIONS = {
    "one": {"messages": [USER]},
    "system": {"messages": [{"role": "system", "content": "Be brief."}, USER]},
    "answers": {"messages": [{"role": "system", "content": "Be brief."}, USER, {"role": "assistant", "content": " warm  "},
                             {"role": "user", "content": "and in the north?"}]},
    "tools": {"messages": [USER, {"role": "assistant", "content": "ah"}, {"role": "user", "content": "again"}], "tools": TOOLS},
    "calls": {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]},
                           {"role": "tool", "tool_call_id": "abc123def", "name": "weather", "content": "it is warm"},
                           {"role": "assistant", "content": "Warm."}, {"role": "user", "content": "thanks"}], "tools": TOOLS},
    "two calls": {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [CALL, SECOND]},
                               {"role": "tool", "tool_call_id": "abc123def", "name": "weather", "content": "warm"},
                               {"role": "tool", "tool_call_id": "def456abc", "name": "weather", "content": "cold"}], "tools": TOOLS},
    "effort": {"messages": [USER], "reasoning_effort": "high"},
}
SETTINGS = {"reasoning_effort": {"type": "enum", "values": ["none", "high"], "accepts_none": True, "default": "none"}}
TEXTS = ["", " ", "the weather", "The  WEATHER\n\n there", "here and\tthere 1234567", "Köln 天气 🌧 e\u0301", "don't\r\n\r\nthere's", "  the", "a" * 300,
         "\u00a0the\u3000winter", "{\"name\": \"other\"}", "there they gather", "ththththth therthe erer"]


def tokenizer_of(file, version):
    data = json.loads(pathlib.Path(file).read_text())
    data["config"]["version"] = version
    if version == "v15":
        data["model_settings_builder"] = SETTINGS
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tekken.json"
        path.write_text(json.dumps(data))
        return MistralTokenizer.from_file(str(path))


def main():
    source, target = sys.argv[1:]
    chats = []
    for version in ("v3", "v7", "v11", "v13", "v15"):
        tokenizer = tokenizer_of(source, version)
        for name, request in CONVERSATIONS.items():
            if name == "effort" and version != "v15":
                continue
            encoded = tokenizer.encode_chat_completion(ChatCompletionRequest(**json.loads(json.dumps(request))))
            chats.append({"version": version, "name": name, "request": request, "text": encoded.text, "ids": encoded.tokens})
    plain = tokenizer_of(source, "v13").instruct_tokenizer.tokenizer
    chance = random.Random(7)
    texts = TEXTS + ["".join(chance.choice(["th", "e", "r", "we", "a", " ", "in", "n", "s", "i", "ö", "0", "\n"]) for _ in range(60))
                     for _ in range(30)]
    data = {"chats": chats, "texts": [{"text": text, "ids": plain.encode(text, bos=False, eos=False)} for text in texts]}
    lists = ("%s: [\n%s\n]" % (json.dumps(key), ",\n".join(map(json.dumps, rows))) for key, rows in data.items())
    pathlib.Path(target).write_text("{\n%s\n}\n" % ",\n".join(lists))


if __name__ == "__main__":
    main()
