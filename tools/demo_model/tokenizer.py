#!/usr/bin/env python3
"""The demo model's tokenizer: byte-level BPE with Llama 3's special tokens.

Numbers are split into single digits, so that the model can learn to carry.
"""
import json
import os
import random

from template import CHAT_TEMPLATE, TOOLS_TEMPLATE
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
    trainers,
)

import problems

VOCAB = 1024
SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
SPECIAL += [f"<|reserved_special_token_{i}|>" for i in range(16 - len(SPECIAL))]
BOS, END, HEAD, HEAD_END, EOT = range(VOCAB - 16, VOCAB - 11)

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")

# Some English text in addition to the problems, so that common words get their own tokens.
ENGLISH = """
The people of the town said that they would go there with their friends after the work was done. It is not easy to know
what comes next, but we can try to think about it and see. When the day was over, all of them went back to the house where
they had lived for many years. She said that this was the best thing that could have happened. He could not believe his eyes.
There was nothing else to do but to wait for the morning. You should always say what you mean. I would like to know which one
of these is yours. If you have any question, please ask. In the first place, it was made for children, and then it was changed.
The world is large, and most of it is water. From here you can see the mountains and the river. Every child can learn to read
and write. Some say yes and others say no. Because of the rain, the game was not played. The answer is correct. The result of
the test was good. This is an example of a sentence. Please explain the following information and return the name, the type,
the value and the number. The user and the assistant talk with the system. Write a short story about the world.
"""


def text_for_training(count, seed):
    r = random.Random(seed)
    for _ in range(60):  # about 1/30 of the text
        yield ENGLISH.replace("\n", " ")
    for _ in range(count):
        form, parts = problems.document(r)
        yield "\n\n".join(p[1] for p in parts)
        if form == "chat":
            yield " ".join(p[0] for p in parts)


def train(count=20000, seed=3):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - len(SPECIAL), show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tok.train_from_iterator(text_for_training(count, seed), trainer)
    tok.add_special_tokens(SPECIAL)
    assert tok.get_vocab_size() == VOCAB and tok.token_to_id("<|eot_id|>") == EOT
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                                      special_tokens=[("<|begin_of_text|>", BOS)])])
    return tok


def save(tok, folder):
    os.makedirs(folder, exist_ok=True)
    tok.save(os.path.join(folder, "tokenizer.json"), pretty=False)


def save_config(folder, tools):
    """Writes the configuration, with the chat template of a model that calls tools if `tools` is set."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|begin_of_text|>",
        "eos_token": "<|eot_id|>",
        "pad_token": "<|end_of_text|>",
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": 131072,
        "added_tokens_decoder": {
            str(BOS + i): {"content": s, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
            for i, s in enumerate(SPECIAL)},
        "chat_template": TOOLS_TEMPLATE if tools else CHAT_TEMPLATE,
    }
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")


def encode(tok, document):
    """Token ids of a document and a mark per token: 2 for answers, 1 for questions. A chat's part (role, content, (start, end, mark))
    sets another mark for some of its characters."""
    form, parts = document
    ids, marks = [BOS], [0]

    def add(new, mark):
        ids.extend(new)
        marks.extend([mark] * len(new))

    def words(text):
        return tok.encode(text, add_special_tokens=False).ids

    if form == "text":
        for is_answer, text in parts:
            add(words(text), 2 if is_answer else 1)
        add([END], 2)
        return ids, marks
    for role, content, *spans in parts:
        add([HEAD] + words(role) + [HEAD_END] + words("\n\n"), 0)
        text = tok.encode(content.strip(), add_special_tokens=False)
        first = len(ids)
        add(text.ids + [EOT], 2 if role == "assistant" else 1)
        for start, end, mark in spans:
            for n, (begins, ends) in enumerate(text.offsets):
                if start <= begins and ends <= end:
                    marks[first + n] = mark
    return ids, marks
