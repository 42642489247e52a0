#!/usr/bin/env python3
"""Writes FOLDER/cases.jsonl for each FOLDER with a tokenizer.json: random texts and the results of Hugging Face `tokenizers`,
for sample_cases_test.

    v/bin/python tools/tokenizers/make_cases.py FOLDER... [--seed N] [--rows N]
"""
import argparse
import json
import pathlib
import random
import sysconfig

from make_step_cases import POOL
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


def texts(r, rows):
    """Code, prose from its comments, and hostile mixtures of characters."""
    sources = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    for i in range(rows):
        if i % 3 == 0:
            source = r.choice(sources).read_text(errors="replace")
            start = r.randrange(max(1, len(source)))
            yield source[start:start + r.randint(1, 600)]
        else:
            yield "".join(r.choice(POOL) * r.choice((1, 1, 1, 2, 7)) for _ in range(r.randint(0, 60)))


def row(t, text, specials, r):
    text = "".join(part + (r.choice(specials) if specials and r.random() < 0.01 else "") for part in text)
    plain = t.encode(text, add_special_tokens=False).ids
    special = t.encode(text, add_special_tokens=True).ids
    out = {"kind": "encode", "text": text, "plain": {"ids": plain}, "with_special": {"ids": special}}
    for key, skip in (("decode_keep", False), ("decode_skip", True)):
        out[key] = {"text": t.decode(special, skip_special_tokens=skip)}
    return out


def stream(t, r, ids):
    prefix, skip = r.choice((0, 0, 3)), r.random() < 0.5
    prefix = min(prefix, len(ids))
    decoder = DecodeStream(ids=ids[:prefix], skip_special_tokens=skip)
    try:
        chunks = [decoder.step(t, i) for i in ids[prefix:]]
    except Exception:  # "Invalid prefix": a limit of the library.
        chunks = None
    return {"kind": "stream", "skip_special_tokens": skip, "ids": ids, "prefix_len": prefix, "chunks": chunks,
            "full": t.decode(ids, skip_special_tokens=skip)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=200)
    options = parser.parse_args()
    for folder in options.folders:
        r = random.Random(options.seed)
        t = Tokenizer.from_file(str(folder / "tokenizer.json"))
        specials = [a.content for a in t.get_added_tokens_decoder().values()][:300]
        with open(folder / "cases.jsonl", "w") as out:
            for text in texts(r, options.rows):
                one = row(t, text, specials, r)
                out.write(json.dumps(one) + "\n")
                ids = one["plain"]["ids"][:40]
                if r.random() < 0.5:  # Random tokens, as a model may sample them: incomplete characters, any token after any other.
                    ids = [r.choice(ids) if r.random() < 0.5 and ids else r.randrange(t.get_vocab_size()) for _ in range(30)]
                out.write(json.dumps(stream(t, r, ids)) + "\n")


if __name__ == "__main__":
    main()
