#!/usr/bin/env python3
"""Writes tests/data/tokenizers/old_steps.jsonl: small complete tokenizers in the format of old files, with the results of Hugging Face
`tokenizers` for random texts. Covers BPE with prefixes and suffixes of words (CLIP, GPT), models without a type (T5), and added tokens
whose ids are already in use. Same format as make_step_cases.py.

    v/bin/python tools/tokenizers/make_old_cases.py tests/data/tokenizers/old_steps.jsonl [SEED] [TEXTS A TOKENIZER]
"""
import json
import random
import sys

from make_encoder_cases import unigram, word_piece
from make_step_cases import BYTE_LEVEL, POOL, TOKENS, empty, metaspace, sequence
from tokenizers import Tokenizer, pre_tokenizers

LETTERS = list("abcdehlor,.'0é中")
# CLIP's tokenizer, without the vocabulary.
CLIP_SPLIT = {"type": "Split", "pattern": {"Regex": r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"},
              "behavior": "Removed", "invert": True}
CLIP_NORMALIZER = sequence("normalizers", {"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
                           {"type": "Lowercase"})


def affixed(r, prefix, suffix, letters, **options):
    """A random vocabulary with merges that are consistent with prefix and suffix."""
    symbols = [p + c + s for c in letters for p in {"", prefix} for s in {"", suffix} if r.random() < 0.95]
    if options.get("byte_fallback"):
        symbols += ["<0x%02X>" % b for b in range(256)]
    vocab = {s: i for i, s in enumerate(dict.fromkeys(symbols + ["<unk>"]))}
    merges = []
    plain = [s for s in vocab if not s.startswith("<")]
    for _ in range(400):
        left = r.choice(plain)
        right = r.choice(plain)
        if (suffix and left.endswith(suffix)) or (prefix and not right.startswith(prefix)):
            continue
        new = left + right[len(prefix):]
        if [left, right] in merges or len(new) > 12:
            continue
        merges.append([left, right])
        if new not in vocab:
            vocab[new] = len(vocab)
            plain.append(new)
        if len(merges) == 60:
            break
    return {"type": "BPE", "dropout": None, "continuing_subword_prefix": prefix or None, "end_of_word_suffix": suffix or None,
            "unk_token": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": merges, **options}


def untyped(model):
    return {key: value for key, value in model.items() if key != "type"}


def odd_tokens(r, vocab):
    """Added tokens with ids that are already in use or far beyond the vocabulary."""
    contents = r.sample(["<x>", "<y>", "<z>", "<w>", r.choice(list(vocab)), "hello"], r.randint(2, 5))
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return [dict({"id": r.choice([0, len(vocab), len(vocab), len(vocab) + 1, len(vocab) + 50]), "content": c},
                 **{f: r.random() < 0.3 for f in flags}) for c in contents]


def whole(r, kind):
    if kind == "clip":
        letters = pre_tokenizers.ByteLevel.alphabet() if r.random() < 0.5 else LETTERS
        model = affixed(r, "", "</w>", letters, unk_token=r.choice([None, "<unk>"]), ignore_merges=r.random() < 0.2)
        return empty(model=model, normalizer=CLIP_NORMALIZER, pre_tokenizer=sequence("pretokenizers", CLIP_SPLIT, dict(BYTE_LEVEL, use_regex=False)),
                     decoder=dict(BYTE_LEVEL))
    if kind == "gpt":
        model = affixed(r, "", "</w>", LETTERS, unk_token="<unk>", fuse_unk=r.random() < 0.5)
        return empty(model=model, pre_tokenizer={"type": "BertPreTokenizer"}, decoder={"type": "BPEDecoder", "suffix": "</w>"})
    if kind == "prefix":
        model = affixed(r, "##", r.choice(["", "</w>"]), LETTERS, unk_token=r.choice([None, "<unk>"]), fuse_unk=r.random() < 0.5,
                        byte_fallback=r.random() < 0.5)
        return empty(model=model, pre_tokenizer={"type": "Whitespace"}, decoder={"type": "WordPiece", "prefix": "##", "cleanup": False})
    if kind == "unigram":
        return empty(model=untyped(unigram(r)), pre_tokenizer=metaspace("always", True), decoder=metaspace("always", True))
    if kind == "words":
        return empty(model=untyped(word_piece(r)), pre_tokenizer={"type": "BertPreTokenizer"},
                     decoder={"type": "WordPiece", "prefix": "##", "cleanup": True})
    model = affixed(r, "", "", LETTERS)
    spec = empty(model=untyped(model) if r.random() < 0.5 else model, decoder={"type": "Fuse"})
    spec["added_tokens"] = odd_tokens(r, model["vocab"])
    return spec


def main(path, seed=1, count=6):
    r, count, rows = random.Random(int(seed)), int(count), []
    for suffix in ("</w>", "▁", "a"):
        step = {"type": "BPEDecoder", "suffix": suffix}
        t = Tokenizer.from_str(json.dumps(empty(decoder=step)))
        lists = [[r.choice(TOKENS + ["a</w>", "</w>", "b</w></w>c"]) for _ in range(r.randint(0, 8))] for _ in range(count * 2)]
        rows.append({"decoder": step, "cases": [[tokens, t.decoder.decode(tokens)] for tokens in lists]})
    pool = LETTERS + list("  x\n") + ["hello", "abc", "<x>", "<y>", "<z>", "<w>", " he", "Ab", "ee"]
    for i in range(36):
        spec = whole(r, ("clip", "gpt", "prefix", "unigram", "words", "added")[i % 6])
        t = Tokenizer.from_str(json.dumps(spec))
        cases = []
        for _ in range(count):
            s = "".join(r.choice(pool + (POOL if r.random() < 0.2 else [])) for _ in range(r.randint(0, 24)))
            ids = t.encode(s).ids
            cases.append([s, t.encode(s, add_special_tokens=False).ids, ids, t.decode(ids, skip_special_tokens=False),
                          t.decode(ids, skip_special_tokens=True)])
        rows.append({"tokenizer": spec, "cases": cases})
    with open(path, "w") as out:
        for row in rows:
            out.write(json.dumps(row, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
