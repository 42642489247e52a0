#!/usr/bin/env python3
"""Writes tests/data/agents/harmony: a tiny gpt-oss that gives fixed answers in the harmony format, with a tokenizer and a chat template.

    v/bin/pip install torch safetensors
    v/bin/python tools/checkpoints/make_harmony.py tests/data/agents/harmony

The weights are constructed, not trained. The next token depends on the last three tokens. Words of `scripts.json` are split into tokens
that occur in only one place, so a token determines the next one. After a special token, the last token before it determines the next one.
The template ends a prompt with the start token of a script. The first word of the last message selects the script; the default is `answer`
after a tool's result, else `plain`. The words' tokens are only generated, never encoded from text.
"""
import itertools
import json
import pathlib
import re

import torch
from arguments import arguments
from safetensors.torch import save_file

SPECIAL = ["<|startoftext|>", "<|endoftext|>", "<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>", "<|call|>"]
ANALYSIS, FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
CALL = "<|channel|>commentary to=functions.%s <|constrain|>json<|message|>%s<|call|>"
NEXT = "<|end|><|start|>assistant"
SCRIPTS = {
    "plain": FINAL + "Forty-two is the answer.<|return|>",
    "think": ANALYSIS + "They greet me, so I greet them." + NEXT + FINAL + "Hello to you!<|return|>",
    "call": ANALYSIS + "The weather needs a call." + NEXT + CALL % ("get_weather", '{"city": "Oslo"}'),
    "tell": ANALYSIS + "First some words." + NEXT + "<|channel|>commentary<|message|>I look it up." + NEXT
    + CALL % ("get_weather", '{"city": "Rome", "days": 2}'),
    "twice": ANALYSIS + "One thought." + NEXT + ANALYSIS + "Another one." + NEXT + FINAL + "Both are told.<|return|>",
    "answer": ANALYSIS + "Its tool has told that." + NEXT + FINAL + "It is 7 degrees in Oslo.<|return|>",
}
TEMPLATE = """\
<|start|>system<|message|>Tools:{% for tool in tools or [] %} {{ tool.function.name }}{% endfor %}<|end|>
{%- for message in messages %}
{%- if message.role == 'assistant' %}
{%- if message.thinking %}<|start|>assistant<|channel|>analysis<|message|>{{ message.thinking }}<|end|>{% endif %}
{%- for call in message.tool_calls or [] %}<|start|>assistant to=functions.{{ call.function.name }}<|channel|>commentary json<|message|>
{{- call.function.arguments | tojson }}<|call|>{% endfor %}
{%- if message.content and not message.tool_calls %}<|start|>assistant<|channel|>final<|message|>{{ message.content }}<|end|>{% endif %}
{%- elif message.role == 'tool' %}<|start|>functions.tool to=assistant<|channel|>commentary<|message|>{{ message.content }}<|end|>
{%- else %}<|start|>{{ message.role }}<|message|>{{ message.content }}<|end|>{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant
{%- set word = 'answer' if messages[-1].role == 'tool' else (messages[-1].content or '').split(' ')[0] %}
{{- '<|go:' ~ (word if word in ['think', 'call', 'tell', 'twice', 'answer'] else 'plain') ~ '|>' }}{% endif %}
"""


def letters_of_bytes():
    """The characters that byte-level tokenizers use for the 256 bytes."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in kept}
    for b in range(256):
        letters.setdefault(b, chr(256 + len(letters) - len(kept)))
    return letters


def cut(word, taken):
    """Splits the word into as few tokens as possible that occur in no other place. Avoids the last letters of "assistant": they end prompts."""
    for count in range(1, 4):
        for ends in itertools.combinations(range(1, len(word)), count - 1):
            parts = [word[begin:end] for begin, end in zip((0, *ends), (*ends, len(word)))]
            if len(set(parts)) == count and not taken & set(parts) and not {"n", "t"} & set(parts):
                taken.update(parts)
                return parts
    raise SystemExit("no tokens are left for " + word)


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    letters = letters_of_bytes()
    starts = ["<|go:%s|>" % name for name in SCRIPTS]
    taken, rows = set(), []
    for name, script in SCRIPTS.items():
        row = ["<|go:%s|>" % name]
        for piece in re.split(r"(<\|\w+\|>)|(?=\s[^\s<])", script):
            if piece:
                row += [piece] if piece in SPECIAL else cut(piece, taken)
        rows.append(row)
    vocab = {letter: i for i, letter in enumerate(letters.values())}
    names = {}  # ids of the tokens in scripts
    for token in sorted(taken):
        written = "".join(letters[b] for b in token.encode())
        names[token] = vocab.setdefault(written, len(vocab))
    added = SPECIAL + starts
    names.update({token: len(vocab) + i for i, token in enumerate(added)})
    size = len(vocab) + len(added)

    # A hidden row has one element for each token of a script, and then one for each token that determines the
    # token after a special token.
    spoken = sorted({token for row in rows for token in row})
    # Finds the token that determines the next one, for each step of a script.
    followers = {}
    for row in rows:
        for token, following in zip(row, row[1:]):
            followers.setdefault(token, set()).add(following)
    steps = set()
    for row in rows:
        for i in range(len(row) - 1):
            back = 0
            while len(followers[row[i - back]]) > 1:
                back += 1
            # Skip special tokens in between: they always have the same follower and so carry no information.
            while back > 0 and row[i - back] in SPECIAL:
                back += 1
            assert back < 3
            steps.add((row[i - back], back > 0, row[i + 1]))
    before = sorted({token for token, is_before, _ in steps if is_before})
    head_dim = 8 * ((max(len(before), 32) + 7) // 8)
    hidden = len(spoken) + head_dim
    place = {token: i for i, token in enumerate(spoken)}
    embed, head = torch.zeros(size, hidden), torch.zeros(size, hidden)
    for token in spoken:
        embed[names[token], place[token]] = 1
    value, output = torch.zeros(head_dim, hidden), torch.zeros(hidden, head_dim)
    for i, token in enumerate(before):
        value[i, place[token]] = 1
        output[len(spoken) + i, i] = 1
    assert len({step[:2] for step in steps}) == len(steps)
    for token, is_before, following in steps:
        if is_before:
            head[names[following], len(spoken) + before.index(token)] = 4
        else:
            head[names[following], place[token]] = 64
    layer = "model.layers.0."
    zeros, ones, attention, experts = torch.zeros, torch.ones, layer + "self_attn.", layer + "mlp.experts."
    inner = 32
    tensors = {
        "model.embed_tokens.weight": embed, "lm_head.weight": head, "model.norm.weight": ones(hidden), layer + "input_layernorm.weight": ones(hidden),
        layer + "post_attention_layernorm.weight": ones(hidden), attention + "q_proj.weight": zeros(head_dim, hidden), attention + "q_proj.bias": zeros(head_dim),
        attention + "k_proj.weight": zeros(head_dim, hidden), attention + "k_proj.bias": zeros(head_dim), attention + "v_proj.weight": value,
        attention + "v_proj.bias": zeros(head_dim), attention + "o_proj.weight": output, attention + "o_proj.bias": zeros(hidden),
        attention + "sinks": torch.full((1,), -50.0), layer + "mlp.router.weight": zeros(1, hidden), layer + "mlp.router.bias": zeros(1),
        experts + "gate_up_proj": zeros(1, hidden, 2 * inner), experts + "gate_up_proj_bias": zeros(1, 2 * inner), experts + "down_proj": zeros(1, inner, hidden),
        experts + "down_proj_bias": zeros(1, hidden)}
    save_file({name: tensor.to(torch.bfloat16).contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors", {"format": "pt"})

    config = {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "vocab_size": size, "hidden_size": hidden, "intermediate_size": inner,
              "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": head_dim, "num_local_experts": 1, "num_experts_per_tok": 1,
              "sliding_window": 3, "layer_types": ["sliding_attention"], "attention_bias": True, "swiglu_limit": 7.0, "rms_norm_eps": 1e-5, "hidden_act": "silu",
              "max_position_embeddings": 4096,
              "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "eos_token_id": names["<|return|>"]}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [names[t] for t in ("<|return|>", "<|endoftext|>", "<|call|>")]}) + "\n")
    tokens = [{"id": names[token], "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for token in added]
    split = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": None, "pre_tokenizer": split, "post_processor": None,
        "decoder": split, "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                                    "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": []}}, ensure_ascii=False) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|return|>"}, indent=1) + "\n")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "scripts.json").write_text(json.dumps(SCRIPTS, indent=1) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(arguments(__doc__)[0]))
