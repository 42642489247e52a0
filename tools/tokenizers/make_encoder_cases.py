#!/usr/bin/env python3
"""Writes tests/data/tokenizers/encoder_steps.jsonl: the results of Hugging Face `tokenizers` for random Unicode. Covers the steps of
WordPiece and Unigram tokenizers, and small complete tokenizers with pairs of texts. Same format as make_step_cases.py.

    v/bin/python tools/tokenizers/make_encoder_cases.py tests/data/tokenizers/encoder_steps.jsonl [SEED] [TEXTS A STEP]
"""
import base64
import json
import random
import struct
import sys

from make_step_cases import POOL, TOKENS, added, empty, metaspace, sequence
from tokenizers import Tokenizer

# More characters that normalizers treat differently: controls, marks in clusters, ideographs of all blocks, jamo.
MORE = [chr(c) for c in (0x1, 0x7F, 0xAD, 0x61C, 0x600, 0x180E, 0x200D, 0x2060, 0x340, 0x483, 0x903, 0xE31, 0x20DD, 0x1D165,
                         0x3400, 0x9FFF, 0xF900, 0x2F800, 0x2B740, 0x2B820, 0x1160, 0xD7B0, 0xFF76, 0xFF9E, 0x2126, 0xFB2A,
                         0x1E9B, 0xE000, 0x378, 0x2065)] + ["e\u0301", "a\u0323\u0301", "\r\n\u0301", "A\u030A", "\u0600a\u0301"]
CHARACTERS = POOL + MORE


def text(r, most=24):
    parts = []
    for _ in range(r.randint(0, most)):
        c = r.choice(CHARACTERS) if r.random() < 0.8 else chr(r.randrange(0x20, 0x3000))
        parts.append(c)
    return "".join(parts)


def double_array(keys):
    """A double array from byte strings to values, in sentencepiece's layout: a unit's children are at its index ^ offset ^ byte."""
    trie = {}
    for key, value in keys.items():
        node = trie
        for byte in key:
            node = node.setdefault(byte, {})
        node[None] = value
    units, used = {}, {0}

    def place(node, at, label):
        children = sorted((0 if byte is None else byte) for byte in node)
        base = 0x100
        while any(base ^ child in used for child in children):
            base += 0x100
        used.update(base ^ child for child in children)
        offset = at ^ base
        # An offset of more than 21 bits is stored without its lowest eight bits.
        units[at] = label | (offset << 10 if offset < 1 << 21 else (offset >> 8) << 10 | 1 << 9) | (1 << 8 if None in node else 0)
        for byte, child in node.items():
            if byte is None:
                units[base] = 1 << 31 | child
            else:
                place(child, base ^ byte, byte)

    place(trie, 0, 0)
    return [units.get(i, 0) for i in range((max(units) // 256 + 1) * 256)]


def charsmap(replacements):
    texts, keys = b"", {}
    for key, value in replacements.items():
        keys[key.encode()] = len(texts)
        texts += value.encode() + b"\0"
    trie = struct.pack("<%dI" % (n := len(u := double_array(keys))), *u)
    assert len(trie) == 4 * n
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + texts).decode()


SMALL = {"A": "a", "\u00a0": " ", "\t": " ", "e\u0301": "é", "é": "E", "\u200b": "", "ﬁ": "fi", "²": "2", "ﷺ": "long text", "\u212b": "å",
         "a\u0301": "á", "\r": "", "\u1100": "k", "\u1161": "v", "x": "", "\u0600": "num", "\u0301": "'"}


def precompiled(replacements):
    return {"type": "Precompiled", "precompiled_charsmap": charsmap(replacements)}


def bert(*flags):
    return dict(zip(("type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"), ("BertNormalizer",) + flags))


NORMALIZERS = [bert(c, h, s, lower) for c in (True, False) for h in (True, False) for s in (None, True, False) for lower in (True, False)] + [
    precompiled(SMALL), precompiled({"a": "x"}),
    sequence("normalizers", precompiled(SMALL), {"type": "Strip", "strip_left": False, "strip_right": True},
             {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"})]
PRE_TOKENIZERS = [{"type": "BertPreTokenizer"}, sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace("always", True))]
DECODERS = [{"type": "WordPiece", "prefix": p, "cleanup": c} for p in ("##", "") for c in (True, False)]
WORD_TOKENS = TOKENS + ["##s", "##n't", "n't", ".", ",", "do", "not", " do not", "'", "'s", "##", "[CLS]", "!", "?", "'m", " ' "]


def word_piece(r):
    letters = list("abcdehlor.,0é中'")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + letters + ["##" + c for c in letters if r.random() < 0.9]
    for _ in range(60):
        word = "".join(r.choice(letters[:9]) for _ in range(r.randint(2, 5)))
        tokens += [t for t in (word, "##" + word[1:]) if t not in tokens]
    return {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": r.choice((100, 8)), "vocab": {t: i for i, t in enumerate(tokens)}}


def unigram(r):
    letters = list("abcdehlor.,0é中▁ ")
    falls_back = r.random() < 0.5
    tokens = ["<s>", "<pad>", "</s>", "<unk>"] + [c for c in letters if r.random() < 0.8]
    if falls_back:
        tokens += ["<0x%02X>" % b for b in range(256)]
    while len(tokens) < 90 + (256 if falls_back else 0):
        word = "".join(r.choice(letters[:9] + ["▁"]) for _ in range(r.randint(2, 6)))
        if word not in tokens:
            tokens.append(word)
    # Few different scores, so that segmentations tie.
    return {"type": "Unigram", "unk_id": 3, "byte_fallback": falls_back,
            "vocab": [[t, 0.0 if i < 4 else -r.choice((2.0, 3.0, 4.5, round(r.random() * 12, 4)))] for i, t in enumerate(tokens)]}


def part(name, type_id=0):
    return {"Sequence" if name in "AB" else "SpecialToken": {"id": name, "type_id": type_id}}


def processor(r, ids, cls, sep):
    pairs = {"sep": [sep, ids[sep]], "cls": [cls, ids[cls]]}
    template = {"type": "TemplateProcessing", "single": [part(cls), part("A"), part(sep)],
                "pair": [part(cls), part("A"), part(sep), part("B", 1), part(sep, 1)],
                "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in (cls, sep)}}
    return r.choice([None, dict(pairs, type="BertProcessing"),
                     dict(pairs, type="RobertaProcessing", trim_offsets=True, add_prefix_space=False), template])


def whole(r, kind):
    if kind == "WordPiece":
        model, names = word_piece(r), ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
        ids = model["vocab"]
        normalizer, pre_tokenizer = r.choice(NORMALIZERS[:24]), r.choice([PRE_TOKENIZERS[0], {"type": "Whitespace"}])
        decoder = r.choice(DECODERS)
        cls, sep = "[CLS]", "[SEP]"
    else:
        model, names = unigram(r), ["<s>", "<pad>", "</s>", "<unk>"]
        ids = {t: i for i, (t, _) in enumerate(model["vocab"])}
        normalizer = r.choice([None] + NORMALIZERS[24:])
        pre_tokenizer = r.choice([None, PRE_TOKENIZERS[1], metaspace("always", True), metaspace("first", False)])
        decoder = metaspace("always", True)
        cls, sep = "<s>", "</s>"
    tokens = [dict(t, special=True, normalized=False) for t in added(r, ids, names)]
    return empty(model=model, added_tokens=tokens, normalizer=normalizer, pre_tokenizer=pre_tokenizer, decoder=decoder,
                 post_processor=processor(r, ids, cls, sep))


def main(path, seed=1, count=8):
    r, count, rows = random.Random(int(seed)), int(count), []
    for step in PRE_TOKENIZERS:
        t = Tokenizer.from_str(json.dumps(empty(pre_tokenizer=step)))
        texts = [text(r) for _ in range(count * 4)]
        rows.append({"pre_tokenizer": step, "cases": [[s, [p for p, _ in t.pre_tokenizer.pre_tokenize_str(s)]] for s in texts]})
    for step in NORMALIZERS:
        t = Tokenizer.from_str(json.dumps(empty(normalizer=step)))
        texts = [text(r) for _ in range(count * (1 if step["type"] == "BertNormalizer" else 8))]
        rows.append({"normalizer": step, "cases": [[s, t.normalizer.normalize_str(s)] for s in texts]})
    for step in DECODERS:
        t = Tokenizer.from_str(json.dumps(empty(decoder=step)))
        lists = [[r.choice(WORD_TOKENS) for _ in range(r.randint(0, 8))] for _ in range(count * 2)]
        rows.append({"decoder": step, "cases": [[tokens, t.decoder.decode(tokens)] for tokens in lists]})
    pool = list("abcdehlor,.<>0 éx中'\u0301") + ["[CLS]", "<s>", "hello", "  ", "abc", "▁", "\n", "Ab", "e\u0301", "\u00a0"]
    for i in range(count * 2):
        spec = whole(r, ("WordPiece", "Unigram")[i % 2])
        t = Tokenizer.from_str(json.dumps(spec))
        cases, pairs = [], []
        for _ in range(count):
            s = "".join(r.choice(pool) for _ in range(r.randint(0, 30)))
            ids = t.encode(s).ids
            cases.append([s, t.encode(s, add_special_tokens=False).ids, ids, t.decode(ids, skip_special_tokens=False),
                          t.decode(ids, skip_special_tokens=True)])
            if len(cases) > 1:
                both = t.encode(cases[-2][0], s)
                pairs.append([cases[-2][0], s, both.ids, both.type_ids])
        rows.append({"tokenizer": spec, "cases": cases, "pairs": pairs})
    with open(path, "w") as out:
        for row in rows:
            out.write(json.dumps(row, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
