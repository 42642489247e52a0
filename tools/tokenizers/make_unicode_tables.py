#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_data.cc: the properties of every code point, measured with Hugging Face `tokenizers`.

    python3 -m venv v && v/bin/pip install tokenizers==0.23.3
    v/bin/python tools/tokenizers/make_unicode_tables.py src/tokenizer/unicode_data.cc

The library uses several versions of Unicode at once: 16 in its regex engine, one before 12.1 for normal forms, 17 for lower case. So no
release of the Unicode tables matches the library, and this script measures the library's behaviour.
"""
import sys

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
ALL = "".join(map(chr, CODES))
CATEGORIES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cs").split()
SCRIPTS = ("Han Hiragana Katakana Hangul Latin Greek Cyrillic Arabic Hebrew Thai Lao Khmer Myanmar Tibetan Devanagari "
           "Bengali Tamil Telugu Kannada Malayalam Gujarati Gurmukhi Sinhala Georgian Armenian Ethiopic Mongolian "
           "Bopomofo Common Inherited").split()


def matched(pattern):
    """The code points that a one-character pattern matches."""
    keep = bytearray(len(ALL))
    for _, (begin, end) in pre_tokenizers.Split(Regex(pattern), "removed").pre_tokenize_str(ALL):
        keep[begin:end] = b"\1" * (end - begin)
    return {CODES[i] for i, kept in enumerate(keep) if not kept}


def isolated(pre_tokenizer, codes):
    """The code points that a pre-tokenizer separates from a letter on both sides."""
    text = "a" + "".join(chr(c) + "a" for c in codes)
    return {ord(piece) for piece, _ in pre_tokenizer.pre_tokenize_str(text) if len(piece) == 1 and piece != "a"}


def ranges(codes):
    out = []
    for c in sorted(codes):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def numbers(values, per_line=12):
    values = ["0x%X" % v for v in values]
    lines, line = [], ""
    for v in values:
        if len(line) + len(v) + 2 > 98:
            lines.append(line.rstrip())
            line = ""
        line += v + ", "
    lines.append(line.rstrip())
    return "\n".join("    " + l for l in lines)


def array(name, comment, values):
    return "// %s\nconst uint32_t %s[] = {\n%s\n};\nconst size_t %sSize = %d;\n" % (
        comment, name, numbers(values), name, len(values))


def main(path):
    category = {}
    for number, name in enumerate(CATEGORIES):
        if name in ("Cn", "Cs"):
            continue
        for c in matched(r"\p{%s}" % name):
            assert c not in category, hex(c)
            category[c] = number
    space = matched(r"\s")
    letters = {c for c, n in category.items() if CATEGORIES[n][0] in "LM" or CATEGORIES[n] in ("Nd", "Pc")}
    regex_word = matched(r"\w")
    print("regex \\w beyond L, M, Nd, Pc:", [hex(c) for c in sorted(regex_word ^ letters)][:20])
    not_space = [c for c in CODES if c not in space]
    text = " ".join("a" + chr(c) + "a" for c in not_space)
    joined = {ord(piece[1]) for piece, _ in pre_tokenizers.Whitespace().pre_tokenize_str(text) if len(piece) == 3}
    assert {p for p, _ in pre_tokenizers.WhitespaceSplit().pre_tokenize_str("a" + "a".join(map(chr, space)) + "a")} == {"a"}
    numeric = isolated(pre_tokenizers.Digits(individual_digits=True), [c for c in CODES if chr(c) != "a"])
    punctuation = isolated(pre_tokenizers.Punctuation("isolated"), [c for c in CODES if chr(c) != "a"])
    accents = normalizers.StripAccents()
    accent = {c for c in CODES if accents.normalize_str(chr(c)) == ""}
    properties, last = [], None
    for c in range(0x110000):
        value = (category.get(c, 0) | (c in space) << 5 | (c in regex_word) << 6 | (c in joined) << 7 |
                 (c in numeric) << 8 | (c in punctuation) << 9 | (c in accent) << 10)
        if 0xD800 <= c < 0xE000:
            value = CATEGORIES.index("Cs")
        if value != last:
            properties.append(c << 11 | value)
            last = value

    lower = []
    lowercase = normalizers.Lowercase()
    for c in CODES:
        s = lowercase.normalize_str(chr(c))
        if s != chr(c):
            lower += [c << 3 | len(s)] + [ord(x) for x in s]

    forms = {f: getattr(normalizers, f)() for f in ("NFC", "NFD", "NFKC", "NFKD")}
    hangul = range(0xAC00, 0xAC00 + 11172)
    canonical, compatible, pairs = [], [], []
    for c in CODES:
        if c in hangul:
            continue
        d = forms["NFD"].normalize_str(chr(c))
        k = forms["NFKD"].normalize_str(chr(c))
        if d != chr(c):
            canonical += [c << 5 | len(d)] + [ord(x) for x in d]
            if len(d) > 1 and forms["NFC"].normalize_str(d) == chr(c):
                first = forms["NFC"].normalize_str(d[:-1])
                assert len(first) == 1 and forms["NFC"].normalize_str(first + d[-1]) == chr(c), hex(c)
                pairs += [ord(first), ord(d[-1]), c]
        if k != d:
            assert len(k) < 32
            compatible += [c << 5 | len(k)] + [ord(x) for x in k]
    # Finds combining classes from the order of marks: normalization moves c before mark m exactly if 0 < class(c) <
    # class(m). So marks of known classes determine all others.
    nfd = forms["NFD"].normalize_str
    known = {1: 0x334, 7: 0x93C, 8: 0x3099, 9: 0x94D, 84: 0xC55, 91: 0xC56, 103: 0xE38, 107: 0xE48, 118: 0xEB8,
             122: 0xEC8, 129: 0xF71, 130: 0xF72, 132: 0xF74, 202: 0x321, 214: 0x1DCE, 216: 0x31B, 218: 0x302A,
             220: 0x316, 222: 0x59A, 224: 0x302E, 226: 0x1D16D, 228: 0x302B, 230: 0x301, 232: 0x315, 233: 0x35C,
             234: 0x35D, 240: 0x345}
    for n in range(10, 27):
        known[n] = 0x5B0 + n - 10 if n < 19 else {19: 0x5B9, 20: 0x5BB, 21: 0x5BC, 22: 0x5BD, 23: 0x5BF, 24: 0x5C1,
                                                  25: 0x5C2, 26: 0xFB1E}[n]
    known.update({27: 0x64B, 28: 0x64C, 29: 0x64D, 30: 0x64E, 31: 0x64F, 32: 0x650, 33: 0x651, 34: 0x652, 35: 0x670,
                  36: 0x711})
    order = sorted(known)
    for a, b in zip(order, order[1:]):
        assert nfd(chr(known[b]) + chr(known[a])) == chr(known[a]) + chr(known[b]), (a, b)

    def before(c, mark):
        return nfd(chr(mark) + chr(c)) == chr(c) + chr(mark) and c != mark

    combining = []
    last = 0
    for c in range(0x110000):
        value = 0
        if not 0xD800 <= c < 0xE000 and nfd(chr(c)) == chr(c):
            if c == known[240]:
                value = 240
            elif before(c, known[240]):
                value = next(n for n, following in zip(order, order[1:] + [None])
                             if following is None or before(c, known[following]))
        if value != last:
            combining.append(c << 8 | value)
            last = value

    scripts = []
    for name in SCRIPTS:
        found = ranges(matched(r"\p{%s}" % name))
        scripts.append((name, [x for r in found for x in r]))

    with open(path, "w") as out:
        out.write("// clang-format off\n// Made by tools/tokenizers/make_unicode_tables.py from the answers of Hugging Face "
                  "tokenizers\n// %s; do not edit. unicode_data.h describes the tables.\n"
                  '#include "tokenizer/unicode_data.h"\n\nnamespace sluice::unicode_data {\n\n' % tokenizers.__version__)
        out.write(array("kProperties", "Each entry is first code point << 11 | properties.", properties) + "\n")
        out.write(array("kLowercase", "Entries: code point << 3 | n, then the n code points of the lowercase mapping.", lower) + "\n")
        out.write(array("kCanonical", "Entries: code point << 5 | n, then the n code points of the full canonical decomposition.", canonical) + "\n")
        out.write(array("kCompatible", "Entries: code point << 5 | n, then the n code points of the full compatibility decomposition, if it differs.", compatible) + "\n")
        out.write(array("kCompositions", "Triples: first, second, composite.", pairs) + "\n")
        out.write(array("kCombiningClasses", "Each entry is first code point << 8 | combining class.", combining) + "\n")
        for name, values in scripts:
            out.write("const uint32_t k%s[] = {\n%s\n};\n\n" % (name, numbers(values)))
        out.write("const Script kScripts[] = {\n")
        for name, values in scripts:
            out.write('    {"%s", k%s, %d},\n' % (name, name, len(values)))
        out.write("};\nconst size_t kScriptsSize = %d;\n\n}  // namespace sluice::unicode_data\n" % len(scripts))


if __name__ == "__main__":
    main(sys.argv[1])
