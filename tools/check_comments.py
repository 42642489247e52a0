#!/usr/bin/env python3
"""Finds comments that begin with "Of ...", "Whatever ..." or "Those of ..." instead of a subject and a verb.

Usage: tools/check_comments.py     prints file and line of each; exits with 1 if there are any
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
COMMENT = re.compile(r"\s*//(?: (.*))?$")
UNCLEAR = re.compile(r"(Of|Whatever|Those of)\b")


def main():
    found = 0
    for path in sorted(path for path in (ROOT / "src").rglob("*") if path.suffix in (".h", ".cc", ".cu")):
        before = False  # whether the previous line is a comment
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            comment = COMMENT.match(line)
            if comment and not before and UNCLEAR.match(comment[1] or ""):
                found += 1
                print("%s:%d: begin with a subject and a verb: %s" % (path.relative_to(ROOT), number, line.strip()))
            before = bool(comment)
    return found > 0


if __name__ == "__main__":
    sys.exit(main())
