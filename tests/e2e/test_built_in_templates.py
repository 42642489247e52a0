"""DeepSeek V4's checkpoints have no chat template: the program's own is used, with the flags of vLLM's recipe for it."""
import json
import shutil

import pytest

from serving import ABACUS, DATA, serving

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The configuration of a small DeepSeek V4 and the tokenizer of another model."""
    folder = tmp_path_factory.mktemp("deepseek-v4")
    config = json.loads((DATA / "checkpoints/tiny-deepseek-v4/config.json").read_text())
    tokens = json.loads((ABACUS / "config.json").read_text())
    for key in ("vocab_size", "bos_token_id", "eos_token_id"):
        config[key] = tokens[key]
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(ABACUS / "tokenizer.json", folder)
    return folder


def prompt_of(server, **request):
    """Returns the text of a chat request's prompt."""
    status, answer = server.post("/tokenize", {"model": "m", **request})
    assert status == 200, answer
    return server.post("/detokenize", {"model": "m", "tokens": answer["tokens"]})[1]["prompt"]


@pytest.mark.parametrize("flags", [(), ("--tokenizer-mode", "deepseek_v4")])
def test_prompts_and_answers(checkpoint, flags):
    with serving(checkpoint, "--load-format", "dummy", *flags, "--enable-auto-tool-choice", "--tool-call-parser", "deepseek_v4",
                 "--reasoning-parser", "deepseek_v4") as server:
        assert "chat template from built in: deepseek_v4" in server.log()
        messages = [{"role": "user", "content": "Hi"}]
        prompt = prompt_of(server, messages=messages, chat_template_kwargs={"thinking": False})
        assert prompt == "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜></think>"
        assert prompt_of(server, messages=messages, chat_template_kwargs={"reasoning_effort": "low"}).endswith("Hi<｜Assistant｜><think>")
        assert '{"name": "add", ' in prompt_of(server, messages=messages, tools=TOOLS)
        status, answer = server.post("/v1/chat/completions", {"messages": messages, "tools": TOOLS, "max_tokens": 4, "reasoning_effort": "none"})
        assert status == 200, answer
