#!/usr/bin/env python3
"""Writes src/tokenizer/range_data.cc: the sets of code points that BertNormalizer and Precompiled treat specially, measured with
Hugging Face `tokenizers`.

    v/bin/python tools/tokenizers/make_range_tables.py
"""
import base64
import pathlib
import struct

import tokenizers
from tokenizers.normalizers import BertNormalizer, Precompiled

OUT = pathlib.Path(__file__).resolve().parents[2] / "src" / "tokenizer" / "range_data.cc"
CODE_POINTS = [c for c in range(1, 0x110000) if not 0xD800 <= c <= 0xDFFF]


def ranges(members):
    out = []
    for c in members:
        if out and out[-1][1] in (c - 1, 0xD7FF if c == 0xE000 else -1):
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def charsmap(key, value):
    """A map of one ASCII letter, in sentencepiece's format: a double array and the replacements."""
    units = [0] * 512
    units[0] = 1 << 10  # the root's children are at index 1 ^ byte
    leaf = 256
    units[1 ^ key] = key | 1 << 8 | ((1 ^ key) ^ leaf) << 10
    units[leaf] = 1 << 31 | 0
    trie = struct.pack("<%dI" % len(units), *units)
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + value + b"\0").decode()


def table(name, comment, members):
    lines = ["", "// " + comment, "const char32_t %s[][2] = {" % name]
    words = ["{0x%X, 0x%X}" % tuple(r) for r in ranges(members)]
    for i in range(0, len(words), 5):
        lines.append("    " + ", ".join(words[i:i + 5]) + ",")
    lines += ["};", "const size_t %sSize = std::size(%s);" % (name, name)]
    return lines


def main():
    clean = BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    marks = BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    cluster = Precompiled(base64.b64decode(charsmap(ord("a"), b"x")))
    assert cluster.normalize_str("ab") == "xb"
    lines = ["// clang-format off", "// Made by tools/tokenizers/make_range_tables.py from the answers of Hugging Face tokenizers",
             "// %s; do not edit. range_data.h describes the tables." % tokenizers.__version__,
             '#include "tokenizer/range_data.h"', "", "#include <iterator>", "", "namespace sluice::range_data {"]
    lines += table("kRemoved", "removed by BertNormalizer's clean_text", [c for c in CODE_POINTS if clean.normalize_str("b" + chr(c)) == "b"])
    lines += table("kMarks", "removed by BertNormalizer's strip_accents", [c for c in CODE_POINTS if marks.normalize_str("b" + chr(c)) == "b"])
    # A whole cluster is replaced if its first character has a replacement.
    lines += table("kExtends", "joined to the previous character by Precompiled", [c for c in CODE_POINTS if cluster.normalize_str("a" + chr(c)) == "x"])
    lines += ["", "}  // namespace sluice::range_data", ""]
    OUT.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
