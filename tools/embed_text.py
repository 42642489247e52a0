#!/usr/bin/env python3
"""Writes a C++ source that defines a function in namespace sluice, which returns the text of FILE as std::string_view.

Usage: tools/embed_text.py OUTPUT.cc HEADER FUNCTION FILE
HEADER, relative to src/, declares FUNCTION.
"""
import pathlib
import sys

DELIMITER = "embedded"


def main(output, header, function, name):
    content = pathlib.Path(name).read_text(encoding="utf-8")
    if ")%s\"" % DELIMITER in content:
        raise SystemExit("%s: expected no )%s\" in it, which ends the literal" % (name, DELIMITER))
    pathlib.Path(output).write_text(
        '#include "%s"\n\nnamespace sluice {\n\nstd::string_view %s() {\n  return R"%s(%s)%s";\n}\n\n}  // namespace sluice\n'
        % (header, function, DELIMITER, content, DELIMITER), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
