#!/usr/bin/env python3
"""Writes tests/data/tokenizers/steps.jsonl: single steps and small complete tokenizers with the results of Hugging Face
`tokenizers` for random texts.

    python3 -m venv v && v/bin/pip install tokenizers==0.23.3
    v/bin/python tools/tokenizers/make_step_cases.py tests/data/tokenizers/steps.jsonl [SEED] [TEXTS A STEP]
"""
import json
import multiprocessing
import random
import resource
import sys

from tokenizers import Tokenizer

POOL = (list("abcABC aeiou  \n\t,.;!?'-_/()[]{}0123456789") + ["'s", "'LL", "'re", "  ", "\r\n", "word", "Hello", " the"] +
        [chr(c) for c in (0xA0, 0x85, 0x2028, 0x3000, 0x200B, 0xFEFF, 0x17F, 0x130, 0xDF, 0x1C5, 0x3A3, 0x301, 0x323, 0x308,
                          0x345, 0x344, 0xE9, 0x1E69, 0x212B, 0x1100, 0x1161, 0x11A8, 0xAC00, 0xAC01, 0x3042, 0x304B,
                          0x3099, 0x30AB, 0x4E2D, 0x6587, 0xFF21, 0xFB01, 0x2160, 0xB2, 0xBD, 0x661, 0x966, 0x928,
                          0x94D, 0x1F600, 0x1F468, 0x200D, 0x2581, 0x120, 0x10D40, 0x11938, 0x32FF, 0x1E4D0, 0xE01EF,
                          0xAB, 0xBF, 0x5F, 0x203F, 0x24, 0x2B, 0x20AC, 0xAA, 0x2B0, 0x1F88, 0xFDFA, 0x0, 0xFFFD)])


def text(r, pool=POOL):
    return "".join(r.choice(pool) for _ in range(r.randint(0, 24)))


def empty(**parts):
    """A complete tokenizer.json with the given parts."""
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
             "pre_tokenizer": None, "post_processor": None, "decoder": None,
             "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                       "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                       "vocab": {}, "merges": []}}
    whole.update(parts)
    return whole


def split(pattern, behavior="Isolated", invert=False):
    kind = "Regex" if isinstance(pattern, tuple) else "String"
    return {"type": "Split", "pattern": {kind: pattern[0] if kind == "Regex" else pattern}, "behavior": behavior,
            "invert": invert}


def metaspace(scheme, cut, **more):
    return dict({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}, **more)


def sequence(name, *steps):
    return {"type": "Sequence", name: list(steps)}


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BEHAVIORS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
REGEXES = [r"\s+", r"\d{1,2}", r"[^\s\p{L}]+", r"\p{Lu}\p{Ll}*", r"\w+|[^\w\s]+", r"(?i:ab|he)|x", r"(?<=a).", r"a*", r"\b",
           r"[a-c\d&&[^b1]]+", r"[\p{L}&&[^\p{Han}]]+|\p{Han}", r"\P{L}", r"[^\P{L}a]", r"\p{^N}+", r"\S{2,3}+", r".$", r"^.",
           r"(a|b)+?c", r"[[:digit:][:space:]]+", r"\p{N}{,2}", r"\h+", r"[\p{P}\p{S}]+", r"\x{4e2d}|[\u3040-\u30ff]+",
           r"(?>\s+)\S", r"[-,]|[a\-c]", r"\p{Mn}+", r"\p{Greek}|\p{Hangul}+|\p{Hiragana}", r"[\s\S]{5}",
           r"(?m:a.)", r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"
           r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
KNOWN = [r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
for suffix, numbers in ((r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}"), ("", r"\p{N}")):
    KNOWN.append(r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + suffix +
                 r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + suffix + "|" + numbers +
                 r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

PRE_TOKENIZERS = (
    [split((x,), "Isolated") for x in KNOWN] +
    [split((x,), b, i) for n, x in enumerate(REGEXES) for b, i in ((BEHAVIORS[n % 5], False), (BEHAVIORS[(n + 1) % 5], True))] +
    [split(s, b, i) for s in (" ", "a", "  ", ",") for b in BEHAVIORS for i in (False, True)] +
    [BYTE_LEVEL, dict(BYTE_LEVEL, add_prefix_space=True), dict(BYTE_LEVEL, use_regex=False), {"type": "Whitespace"},
     {"type": "WhitespaceSplit"}, {"type": "Digits", "individual_digits": True}, {"type": "Digits", "individual_digits": False}] +
    [{"type": "Punctuation", "behavior": b} for b in BEHAVIORS] +
    [metaspace(s, cut) for s in ("always", "first", "never") for cut in (True, False)] +
    [sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace("first", True), {"type": "Digits", "individual_digits": True}),
     sequence("pretokenizers", split(",", "MergedWithNext"), dict(BYTE_LEVEL, add_prefix_space=True)),
     sequence("pretokenizers", BYTE_LEVEL, split(("Ġ",), "MergedWithPrevious")),
     sequence("pretokenizers", {"type": "Punctuation", "behavior": "Isolated"}, sequence("pretokenizers", BYTE_LEVEL, metaspace("always", True)))])

NORMALIZERS = [{"type": t} for t in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")] + [
    {"type": "Strip", "strip_left": l, "strip_right": r} for l in (True, False) for r in (True, False)] + [
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
    {"type": "Replace", "pattern": {"Regex": r"a|b+"}, "content": "<>"},
    {"type": "Prepend", "prepend": "▁"},
    sequence("normalizers", {"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"}),
    sequence("normalizers", {"type": "Strip", "strip_left": True, "strip_right": False}, {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"})]

DECODERS = [BYTE_LEVEL, {"type": "Fuse"}, {"type": "ByteFallback"}, metaspace("always", True), metaspace("first", False),
            metaspace("never", True), {"type": "Strip", "content": "a", "start": 2, "stop": 0},
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "Replace", "pattern": {"Regex": "[aeiou]+"}, "content": "*"},
            sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                     {"type": "Strip", "content": " ", "start": 1, "stop": 0}),
            sequence("decoders", {"type": "ByteFallback"}, metaspace("always", True), {"type": "Fuse"}), None]
TOKENS = ["▁the", "▁", "a", "aa", "Ġdog", "Ċ", "é", "<0x41>", "<0xE4>", "<0xB8>", "<0xAD>", "<0xFF>", "<0x0a>", "<0xZZ>", "â", "Ģ",
          "aab▁", "<pad>", "中", "ðŁ", "ĺ", "Ģ", " x ", "▁▁"]


def model(r, **options):
    """A random vocabulary over a few characters, with merges of existing symbols."""
    symbols = list("abcdehlor, ▁.<>0") + ["<unk>"]
    if options.get("byte_fallback"):
        symbols += ["<0x%02X>" % b for b in range(256)]
    merges = []
    plain = [s for s in symbols if len(s) == 1]
    while len(merges) < 40:
        pair = (r.choice(plain), r.choice(plain))
        if "".join(pair) in symbols or len(pair[0] + pair[1]) > 6:
            continue
        merges.append(pair)
        plain.append("".join(pair))
        symbols.append("".join(pair))
    if r.random() < 0.5:
        extra = [s for s in ("hello", "abc", "▁a,", "0.0") if s not in symbols]
        symbols += extra  # Merges do not produce these.
    out = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
           "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
           "vocab": {s: i for i, s in enumerate(symbols)},
           "merges": [list(m) for m in merges] if r.random() < 0.5 or any(" " in a + b for a, b in merges) else [" ".join(m) for m in merges]}
    out.update(options)
    return out


def added(r, vocab, contents):
    """Added tokens with the ids that the library gives them: the vocabulary's own, else the next free ones."""
    out = []
    fresh = len(vocab)
    for c in contents:
        flags = {f: r.random() < 0.4 for f in ("single_word", "lstrip", "rstrip", "normalized", "special")}
        out.append(dict({"id": vocab.get(c, fresh), "content": c}, **flags))
        fresh += c not in vocab
    return out


def whole(r):
    m = model(r, unk_token=r.choice([None, "<unk>"]), fuse_unk=r.random() < 0.5, byte_fallback=r.random() < 0.5,
              ignore_merges=r.random() < 0.5)
    tokens = added(r, m["vocab"], r.sample(["<a>", "<ab>", "ab", "hello", " ", "  ", "Ab", "<|x|>", "c, d", "é"], 5))
    bos = {"SpecialToken": {"id": tokens[0]["content"], "type_id": 0}}
    text_part = {"Sequence": {"id": "A", "type_id": 0}}
    template = {"type": "TemplateProcessing", "single": r.choice([[bos, text_part], [text_part, bos], [bos, text_part, bos, bos]]),
                "pair": [text_part, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {tokens[0]["content"]: {"id": tokens[0]["content"], "ids": [tokens[0]["id"]], "tokens": [tokens[0]["content"]]}}}
    return empty(model=m, added_tokens=tokens, normalizer=r.choice([None] + NORMALIZERS), pre_tokenizer=r.choice([None] + PRE_TOKENIZERS),
                 post_processor=r.choice([None, template, sequence("processors", BYTE_LEVEL, template)]),
                 decoder=r.choice([d for d in DECODERS]))


def answers(spec, texts, send):
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    t = Tokenizer.from_str(json.dumps(spec))
    cases = []
    for s in texts:
        ids = t.encode(s, add_special_tokens=False).ids
        special = t.encode(s, add_special_tokens=True).ids
        cases.append([s, ids, special, t.decode(special, skip_special_tokens=False), t.decode(special, skip_special_tokens=True)])
    send.send(cases)


def main(path, seed=1, count=6):
    r = random.Random(int(seed))
    count = int(count)
    rows = []
    for step in PRE_TOKENIZERS:
        t = Tokenizer.from_str(json.dumps(empty(pre_tokenizer=step)))
        cases = []
        for _ in range(count):
            s = text(r)
            cases.append([s, [piece for piece, _ in t.pre_tokenizer.pre_tokenize_str(s)]])
        rows.append({"pre_tokenizer": step, "cases": cases})
    for step in NORMALIZERS:
        t = Tokenizer.from_str(json.dumps(empty(normalizer=step)))
        cases = []
        for _ in range(count * 3):
            s = text(r)
            cases.append([s, t.normalizer.normalize_str(s)])
        rows.append({"normalizer": step, "cases": cases})
    for step in DECODERS:
        if step is None:
            continue
        t = Tokenizer.from_str(json.dumps(empty(decoder=step)))
        cases = []
        for _ in range(count * 2):
            tokens = [r.choice(TOKENS) for _ in range(r.randint(0, 8))]
            cases.append([tokens, t.decoder.decode(tokens)])
        rows.append({"decoder": step, "cases": cases})
    pool = list("abcdehlor,.<>0 éx中\u0301") + ["<a>", "<ab>", "hello", "  ", " ", "Ab", "<|x|>", "ab", "▁", "\n"]
    n = 0
    while n < count * 5:
        spec = whole(r)
        texts = [text(r, pool) for _ in range(count * 2)]
        # In a separate process: some of these tokenizers make the library panic, loop or run out of memory.
        receive, send = multiprocessing.Pipe(False)
        process = multiprocessing.Process(target=answers, args=(spec, texts, send))
        process.start()
        send.close()
        try:
            cases = receive.recv() if receive.poll(5) else None
        except EOFError:
            cases = None
        process.kill()
        process.join()
        if cases is None:
            print("the library fails on a tokenizer")
            continue
        rows.append({"tokenizer": spec, "cases": cases})
        n += 1
    with open(path, "w") as out:
        for row in rows:
            out.write(json.dumps(row, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
